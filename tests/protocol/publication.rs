//! Publication in virtual time: the pure core (LIFE, a post on its way) against a model of a server that is down, locked,
//! answers with pages or half, or stores what it never answered. Decisions C-04, C-106, C-107.
#![expect(clippy::panic, reason = "a model that cannot go on fails its test")]

use std::time::{Duration, Instant};

use ocx::engine::advance::advance;
use ocx::node::poster::{Act, Fate};
use ocx::node::posting::{Outcome, Posting};
use ocx::protocol::life::{Do, Event, State};

const DAY: u64 = 86_400;
/// A pull is completed so often while the server answers.
const PULL_S: u64 = 75;

/// What the server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Up,
    /// Nobody listens.
    Down,
    /// 5xx, a page of HTML, `database is locked` for longer than the voice tries: known not stored.
    NotStored,
    /// Stored so many seconds later, and never answered.
    StoredUnanswered(u64),
    /// Neither stored nor answered.
    LostUnanswered,
    /// The thread is closed.
    Closed,
}

/// What came of one run's publication.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    stored: Vec<&'static str>,
    attempts: usize,
    failed: Vec<&'static str>,
    settled_at: Option<u64>,
}

/// Publishes `ended` and the kept log, second by second. `rule`: unanswered posts are looked for, as C-106 asks.
fn publish(rule: bool, until: u64, server: impl Fn(u64, usize) -> Server) -> Came {
    let begin = Instant::now();
    let at = |s: u64| begin + Duration::from_secs(s);
    let mut came = Came { stored: Vec::new(), attempts: 0, failed: Vec::new(), settled_at: None };
    let mut late: Vec<(u64, &'static str)> = Vec::new();
    let mut state = State::Ending;
    let (mut what, mut post) = ("ended", Posting::new("ended".into(), begin));
    for now in 0..until {
        late.retain(|(when, text)| {
            if *when <= now {
                came.stored.push(text);
            }
            *when > now
        });
        let mut act = post.due(at(now));
        let reachable = !matches!(server(now, came.attempts), Server::Down | Server::NotStored);
        if act.is_none() && now % PULL_S == 0 && reachable {
            act = post.completed(at(now), at(now));
            act = act.or_else(|| post.due(at(now)));
        }
        let fate = match act {
            None => continue,
            Some(Act::Look) if came.stored.contains(&what) => Fate::Stored(None),
            Some(Act::Look) => Fate::Absent,
            Some(Act::Send) => {
                came.attempts += 1;
                match server(now, came.attempts) {
                    Server::Up => {
                        came.stored.push(what);
                        Fate::Stored(None)
                    }
                    Server::Down => Fate::Later("nothing was sent".into()),
                    Server::NotStored => Fate::Later("answered 503".into()),
                    Server::StoredUnanswered(after) => {
                        late.push((now + after, what));
                        Fate::Unknown("no answer".into())
                    }
                    Server::LostUnanswered => Fate::Unknown("no answer".into()),
                    Server::Closed => Fate::Never("the thread is closed".into()),
                }
            }
        };
        let fate = match fate {
            Fate::Unknown(why) if !rule => Fate::Later(why),
            other => other,
        };
        let event = match (post.fate(fate, at(now)), state) {
            (Outcome::Waiting(_), _) => continue,
            (Outcome::Confirmed(_), State::Ending) => Event::EndedConfirmed,
            (Outcome::Confirmed(_), _) => Event::Published,
            // `ended` is tried again for ever; a publication is not (C-107).
            (Outcome::Failed(_), State::Ending) => continue,
            (Outcome::Failed(_), _) => {
                came.failed.push(what);
                Event::Published
            }
        };
        let Ok(step) = advance(state, event) else { panic!("{event} while {state}") };
        state = step.to;
        if step.effects.contains(&Do::Publish) {
            (what, post) = ("logs", Posting::new("logs".into(), at(now)));
        }
        if step.effects.contains(&Do::Release) {
            came.settled_at = Some(now);
            break;
        }
    }
    // What was on its way is stored in the end.
    came.stored.extend(late.iter().map(|(_, text)| text));
    came
}

const BOTH: [&str; 2] = ["ended", "logs"];

#[test]
fn c_107_a_server_down_for_a_day_is_asked_ever_less_often_and_gets_both_once_it_is_back() {
    for away in [Server::Down, Server::NotStored] {
        let came = publish(true, 2 * DAY, |now, _| if now < DAY { away } else { Server::Up });
        assert_eq!(came.stored, BOTH, "{away:?}");
        // 1, 2, 4 … 512 s, then every ten minutes.
        let most = usize::try_from(DAY / 600).unwrap_or_default() + 12;
        assert!((most - 4..=most + 2).contains(&came.attempts), "{away:?}: {} attempts", came.attempts);
        assert!(came.settled_at.is_some_and(|at| at <= DAY + PULL_S), "{away:?}: {:?}", came.settled_at);
    }
    // Control: one that is there gets them at once.
    assert_eq!(publish(true, DAY, |_, _| Server::Up).attempts, 2);
}

#[test]
fn c_106_c_04_whatever_is_answered_half_each_post_is_stored_once_and_in_order() {
    let mut doubled = 0;
    for seed in 1..=400_u64 {
        let server = |now: u64, attempt: usize| {
            // Troubled for an hour, then well. A word of the seed for each attempt and minute.
            let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (now / 60) << 20 ^ attempt as u64;
            for shift in [12_u32, 25, 27] {
                x ^= x >> shift;
                x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
            }
            match x >> 60 {
                _ if now > 3600 => Server::Up,
                0..=3 => Server::StoredUnanswered((x >> 8) % 60),
                4..=6 => Server::LostUnanswered,
                7..=9 => Server::NotStored,
                10..=12 => Server::Down,
                _ => Server::Up,
            }
        };
        let came = publish(true, DAY, server);
        assert_eq!(came.stored, BOTH, "seed {seed}: {came:?}");
        assert!(came.settled_at.is_some(), "seed {seed}");
        doubled += usize::from(publish(false, DAY, server).stored.len() > 2);
    }
    // Control: without the look, what was stored without an answer is stored again.
    assert!(doubled > 50, "{doubled}");
}

#[test]
fn c_107_a_closed_thread_fails_the_kept_log_and_never_the_ended() {
    // Closed between the two.
    let came = publish(true, DAY, |_, attempt| if attempt < 2 { Server::Up } else { Server::Closed });
    assert_eq!((came.stored.as_slice(), came.failed.as_slice()), (&["ended"][..], &["logs"][..]));
    assert!(came.settled_at.is_some() && came.attempts == 2, "a definite refusal is not tried again: {came:?}");
    // Closed before `ended`, and opened again after six hours: it is still posted, and then the log.
    let came = publish(true, DAY, |now, _| if now < DAY / 4 { Server::Closed } else { Server::Up });
    assert_eq!((came.stored.as_slice(), came.failed.len()), (&BOTH[..], 0));
}
