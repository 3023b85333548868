//! Many holders of one key, who hold it for a while in turn.

use std::time::Duration;

use crate::{
    bare_mutex::BareMutex,
    contest::Crowd,
    figures::{Figures, Target, number, percentile},
    leases::Leases,
    matrix::Matrix,
};

const TEN_BY_TEN: Crowd = Crowd { holders: 10, turns: 10, hold: Duration::from_millis(5) };
const HUNDRED_ONCE: Crowd = Crowd { holders: 100, turns: 1, hold: Duration::from_millis(1) };

pub(crate) async fn measure(mut figures: Figures) -> Figures {
    let names = ["10x10_hold_5ms_total_s", "10x10_hold_5ms_vs_mutex_ratio", "10x10_hold_5ms_handoffs_of_99"];
    beside_a_mutex(TEN_BY_TEN, &mut figures, names).await;
    let names =
        ["matrix_10x10_hold_5ms_total_s", "matrix_10x10_hold_5ms_handoffs_of_99", "matrix_10x10_hold_5ms_timeouts"];
    over_matrix(TEN_BY_TEN, &mut figures, names).await;
    let names = ["100x1_hold_1ms_total_s", "100x1_hold_1ms_vs_mutex_ratio", "100x1_hold_1ms_handoffs_of_99"];
    beside_a_mutex(HUNDRED_ONCE, &mut figures, names).await;
    let names =
        ["matrix_100x1_hold_1ms_total_s", "matrix_100x1_hold_1ms_handoffs_of_99", "matrix_100x1_hold_1ms_timeouts"];
    over_matrix(HUNDRED_ONCE, &mut figures, names).await;
    figures
}

/// Leases and a mutex by turns, so that a busy machine slows both.
async fn beside_a_mutex(crowd: Crowd, figures: &mut Figures, names: [&'static str; 3]) {
    let (mut totals, mut ratios, mut handoffs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        let mutex = crowd.run(&BareMutex::default()).await;
        let leases = crowd.run(&Leases::default()).await;
        totals.push(leases.seconds);
        ratios.push(leases.seconds / mutex.seconds);
        handoffs.push(number(leases.handoffs));
    }
    figures.add(names[0], percentile(&mut totals, 50), Target::None);
    figures.add(names[1], percentile(&mut ratios, 50), Target::AtMost(1.05));
    figures.add(names[2], percentile(&mut handoffs, 0), Target::AtLeast(90.0));
}

/// Once: it takes seconds.
async fn over_matrix(crowd: Crowd, figures: &mut Figures, names: [&'static str; 3]) {
    let store = Matrix::default();
    let course = crowd.run(&store).await;
    figures.add(names[0], course.seconds, Target::None);
    figures.add(names[1], number(course.handoffs), Target::None);
    figures.add(names[2], number(store.timeouts()), Target::None);
}
