//! Properties: what holds of everything a seeded sequence makes, case after case.
//!
//! A test includes this file with `#[path]`. `OCX_PROPERTIES_S` has each property tried for so many seconds with seeds of
//! its own; `OCX_PROPERTY_SEED` tries the one that a failure named.
#![allow(dead_code, reason = "each test program uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a property that does not hold ends there"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

/// How long each property is tried, unless told otherwise.
const USUALLY: Duration = Duration::from_secs(2);
/// Cases tried at least, however slow the machine.
const CASES_MIN: u64 = 500;
/// Cases tried at most, unless told for how long.
const CASES_MAX: u64 = 20_000;

/// A sequence that is the same for the same seed (xorshift64*).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Seeds that follow each other make sequences that have nothing in common.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.number() >> 33) % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    /// True once in so many.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        all.get(self.below(all.len())).unwrap()
    }

    /// So many, fewer or none.
    pub(crate) fn some<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    pub(crate) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (!self.once_in(2)).then(|| make(self))
    }

    /// A byte of noise: flipped, changed, put in, taken out, or a part said twice.
    pub(crate) fn spoil(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let byte = u8::try_from(self.below(256)).unwrap();
        match self.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << (byte & 7),
            1 if at < bytes.len() => bytes[at] = byte,
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 if at < bytes.len() => {
                let end = (at + 1 + self.below(24)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                drop(bytes.splice(to..to, part));
            }
            _ => bytes.insert(at, byte),
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|it| it.parse().unwrap())
}

/// Holds a property against one case after another.
///
/// # Panics
/// When it does not hold, with the seed that shows it.
pub(crate) fn hold(property: impl Fn(&mut Random) -> Result<(), String>) {
    let told = number_of("OCX_PROPERTY_SEED");
    let longer = number_of("OCX_PROPERTIES_S").map(Duration::from_secs);
    // Without being told they are the same in each run, so that nobody's change fails by chance.
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let first = told.unwrap_or_else(|| if longer.is_some() { clock() << 32 } else { 1 });
    let start = Instant::now();
    for seed in first.. {
        let tried = seed - first;
        let enough = match longer {
            _ if told.is_some() => tried == 1,
            Some(longer) => start.elapsed() >= longer,
            None => tried == CASES_MAX || tried >= CASES_MIN && start.elapsed() >= USUALLY,
        };
        if enough {
            break;
        }
        match catch_unwind(AssertUnwindSafe(|| property(&mut Random::new(seed)))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("OCX_PROPERTY_SEED={seed}: {why}"),
            Err(_) => panic!("OCX_PROPERTY_SEED={seed}: it panicked"),
        }
    }
}

/// Fails the property unless it is so.
pub(crate) fn is(what: &str, so: bool) -> Result<(), String> {
    if so { Ok(()) } else { Err(what.to_owned()) }
}
