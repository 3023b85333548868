use alloc::{collections::BTreeMap, vec::Vec};
use core::hash::{Hash, Hasher};

use super::*;

#[test]
fn it_is_a_map_in_order() {
    let mut map = SortedMap::new();
    for (key, value) in [(3, 'c'), (1, 'a'), (2, 'b'), (1, 'A')] {
        map.insert(key, value);
    }
    assert!(map.iter().eq([(&1, &'A'), (&2, &'b'), (&3, &'c')]));
    assert_eq!((map.get(&2), map.get(&4), map.len()), (Some(&'b'), None, 3));
    assert_eq!((map.remove(&1), map.remove(&1)), (Some('A'), None));
    *map.or_default(&9) = 'i';
    map.retain(|key, _| *key != 2);
    assert!(map.into_iter().eq([(3, 'c'), (9, 'i')]));
}

/// Numbers without an order, the same in each run.
fn numbers(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
}

#[test]
fn it_does_what_a_tree_does_however_large_it_grows_and_shrinks() {
    for size in [10, 130, 1_000, 20_000] {
        let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
        for (step, number) in numbers(4 * size).enumerate() {
            let key = number % size;
            // It grows at first, and shrinks at last.
            if number >> 16 & 3 < if step as u64 > 2 * size { 1 } else { 3 } {
                map.insert(key, step);
                tree.insert(key, step);
            } else {
                assert_eq!(map.remove(&key), tree.remove(&key));
            }
            assert_eq!((map.len(), map.first().map(|first| first.0)), (tree.len(), tree.keys().next().copied()));
        }
        assert!(map.iter().eq(&tree));
        assert!(map.from(|key| *key < size / 2).map(|(key, value)| (key, value)).eq(tree.range(size / 2..)));
        for value in map.values_mut().chain(tree.values_mut()) {
            *value += 1;
        }
        map.retain(|key, _| key % 7 == 0);
        tree.retain(|key, _| key % 7 == 0);
        assert!((0..size).all(|key| map.get(&key) == tree.get(&key)));
        assert!(map.clone().into_iter().eq(tree.clone()));
        while let Some(last) = tree.pop_last() {
            assert_eq!(map.remove(&last.0), Some(last.1));
        }
        assert!(map.is_empty() && map.first().is_none() && map.iter().next().is_none());
    }
}

#[derive(Default)]
struct Sum(u64);

impl Hasher for Sum {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn hash(map: &SortedMap<u64, ()>) -> u64 {
    let mut sum = Sum::default();
    map.hash(&mut sum);
    sum.finish()
}

/// The model checker compares machines and hashes them.
#[test]
fn maps_with_the_same_entries_are_equal_however_they_came_to_them() {
    let mut one: SortedMap<u64, ()> = SortedMap::new();
    let mut other = SortedMap::new();
    (0..1_000).for_each(|key| one.insert(key, ()));
    (0..2_000).rev().for_each(|key| other.insert(key, ()));
    assert!(one != other && hash(&one) != hash(&other));
    other.retain(|key, ()| *key < 1_000);
    assert!(one == other && hash(&one) == hash(&other));
    other.remove(&500);
    assert_ne!(one, other);
}

#[test]
fn places_that_are_kept_stay_those_of_their_entries() {
    let mut map = SortedMap::new();
    let (mut kept, mut keys) = (Vec::new(), Vec::new());
    for key in numbers(3_000) {
        let Err(at) = map.find(&key) else { continue };
        let at = map.insert_at(at, (key, ()), &mut kept);
        if keys.len() < 100 || key % 16 == 0 {
            kept.push(at);
            keys.push(key);
        }
        assert_eq!(map.find(&key), Ok(at));
    }
    for (at, key) in kept.iter().zip(&keys) {
        assert_eq!(*map.at_mut(*at).0, *key);
    }
}
