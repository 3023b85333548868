//! One process at a time writes a report: the program of `docs/a-native-worker.md`.
//!
//! `LEASES=sqlite:/tmp/reports.db cargo run --example report_worker --features tokio,store-sqlite`

use std::{error::Error, future::Future, process::ExitCode, time::Duration};

use leasehold::{AcquireError, LeaseGuard, LeaseManager, LostReason, OnLoss, executor::TokioExecutor};

const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(url) = std::env::var("LEASES") else {
        eprintln!("set LEASES to the URL of a store, such as sqlite:/var/lib/reports/reports.db");
        return ExitCode::FAILURE;
    };
    match run(&url, TokioExecutor::shutdown_signal()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Box<dyn Error>> {
    let leases = LeaseManager::from_url(url, TokioExecutor::new()).await?;
    leases.close_when(stop);
    let ended = work(&leases, url).await;
    leases.close().await; // waits until all leases are released
    ended
}

async fn work(leases: &LeaseManager, url: &str) -> Result<(), Box<dyn Error>> {
    while !leases.is_closed() {
        let request = leases.lock("report").info("the report worker").on_loss(OnLoss::Abort);
        match request.run(async |lease| report(lease, url).await).await {
            Ok(ran) => ran.value.unwrap_or_else(|error| eprintln!("no report: {error}")),
            Err(AcquireError::Closed | AcquireError::Lost { reason: LostReason::Closed, .. }) => break,
            Err(lost @ AcquireError::Lost { .. }) => eprintln!("the report was abandoned: {lost}"),
            Err(AcquireError::Store(error)) if error.retry => eprintln!("{error}"),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn report(lease: &LeaseGuard, url: &str) -> Result<(), Box<dyn Error>> {
    let text = collect().await;
    // Cuts off the parameters, such as "?prefix=reports".
    let place = url.split('?').next().unwrap_or(url);
    match place.strip_prefix("sqlite:") {
        Some(path) => save(lease, path.strip_prefix("//").unwrap_or(path), &text)?,
        None => println!("{text} (token {})", lease.token()),
    }
    Ok(())
}

async fn collect() -> String {
    tokio::time::sleep(PAUSE).await; // the slow part
    "all is well".into()
}

fn save(lease: &LeaseGuard, path: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let mut database = rusqlite::Connection::open(path)?;
    database.execute_batch("CREATE TABLE IF NOT EXISTS reports (text TEXT)")?;
    let transaction = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let fenced = lease.fence(&transaction).into_inner()?;
    transaction.execute("INSERT INTO reports VALUES (?1)", [text])?;
    transaction.commit()?;
    fenced.committed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(path: std::path::PathBuf, reports: u32) {
        loop {
            let database = rusqlite::Connection::open(&path).expect("it opens");
            // Until the first report there is no table.
            let all = "SELECT count(*) FROM reports WHERE text = 'all is well'";
            if database.query_row(all, [], |row| row.get(0)).is_ok_and(|count: u32| count >= reports) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn two_workers_write_reports_until_they_are_stopped() {
        let directory = std::env::temp_dir().join(format!("leasehold-report-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("it can be made");
        let path = directory.join("reports.db");
        let url = format!("sqlite:{}?prefix=reports_leases", path.display());
        let (one, other) = tokio::join!(run(&url, written(path.clone(), 4)), run(&url, written(path.clone(), 4)));
        one.and(other).expect("both end without an error");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }

    #[tokio::test]
    async fn one_worker_goes_on_in_memory_until_it_is_stopped() {
        run("memory:", tokio::time::sleep(PAUSE * 5)).await.expect("it ends without an error");
    }
}
