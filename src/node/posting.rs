//! One post of a run until the server has it: when it is sent, looked for and sent again. Pure; time is passed in.

use std::time::{Duration, Instant};

use supervisor::points;

use super::poster::{Act, Fate};

/// Wait before a post that was not stored is sent again: at first, and at most (decisions C-107).
const AGAIN_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// How long after an unanswered attempt a completion must have been asked to show that nothing was stored (C-106).
pub const UNKNOWN_WAIT: Duration = Duration::from_secs(60);

/// Where a post stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// To be sent at this time.
    Send(Instant),
    /// Being sent.
    Sending,
    /// Being looked for; whether finding nothing shows that nothing was stored, and when the attempt ended.
    Looking { conclusive: bool, since: Instant },
    /// Perhaps stored: its last attempt ended then. Looked for after each completion.
    Unknown(Instant),
}

/// A post on its way.
#[derive(Debug)]
pub struct Posting {
    /// The exact text.
    pub text: String,
    standing: Standing,
    wait: Duration,
    begun: Instant,
    trouble: Option<(Instant, String)>,
}

/// What a post waits for, for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Whether the server may have it already: it is looked for, not sent.
    pub unknown: bool,
    /// Since when: the first attempt that failed; else when it was to be posted.
    pub since: Instant,
    /// Why the last attempt failed, if one has.
    pub why: Option<&'a str>,
    /// When it is sent again, if that is known.
    pub again: Option<Instant>,
}

/// What a fate means for the run.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has it; its hash where known.
    Confirmed(Option<String>),
    /// Definitely refused.
    Failed(String),
    /// Not yet; a line for the log.
    Waiting(String),
}

impl Posting {
    /// A post never attempted.
    #[must_use]
    pub fn new(text: String, now: Instant) -> Self {
        Self { text, standing: Standing::Send(now), wait: AGAIN_WAIT.0, begun: now, trouble: None }
    }

    /// A post that a process before this one may have attempted: it is looked for before it is sent.
    #[must_use]
    pub fn perhaps_sent(text: String, now: Instant) -> Self {
        Self { text, standing: Standing::Unknown(now), wait: AGAIN_WAIT.0, begun: now, trouble: None }
    }

    /// What is to be handed to the voice now, if anything.
    pub fn due(&mut self, now: Instant) -> Option<Act> {
        let Standing::Send(at) = self.standing else { return None };
        if at > now {
            return None;
        }
        self.standing = Standing::Sending;
        Some(Act::Send)
    }

    /// When [`Self::due`] is worth asking again.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        match self.standing {
            Standing::Send(at) => Some(at),
            Standing::Sending | Standing::Looking { .. } | Standing::Unknown(_) => None,
        }
    }

    /// What it waits for.
    #[must_use]
    pub fn waits(&self) -> Waiting<'_> {
        let (unknown, again) = match self.standing {
            Standing::Send(at) => (false, Some(at)),
            Standing::Sending => (false, None),
            Standing::Looking { .. } | Standing::Unknown(_) => (true, None),
        };
        let (since, why) = match &self.trouble {
            Some((since, why)) => (*since, Some(why.as_str())),
            None => (self.begun, None),
        };
        Waiting { unknown, since, why, again: again.filter(|_| why.is_some()) }
    }

    /// A pull was completed whose number was asked at `asked_at`: the server is there, so what waits is sent at once,
    /// and what is unknown is looked for.
    pub fn completed(&mut self, asked_at: Instant, now: Instant) -> Option<Act> {
        match self.standing {
            Standing::Send(_) => {
                self.standing = Standing::Send(now);
                None
            }
            Standing::Unknown(since) => {
                self.standing =
                    Standing::Looking { conclusive: asked_at >= since + points::wait("unknown", UNKNOWN_WAIT), since };
                Some(Act::Look)
            }
            Standing::Sending | Standing::Looking { .. } => None,
        }
    }

    /// What became of the attempt that was in flight.
    pub fn fate(&mut self, fate: Fate, at: Instant) -> Outcome {
        let (conclusive, since) = match self.standing {
            Standing::Looking { conclusive, since } => (conclusive, since),
            Standing::Sending | Standing::Send(_) | Standing::Unknown(_) => (false, at),
        };
        if let Fate::Never(why) | Fate::Later(why) | Fate::Unknown(why) = &fate {
            let since = self.trouble.as_ref().map_or(at, |(since, _)| *since);
            self.trouble = Some((since, why.clone()));
        }
        match fate {
            Fate::Stored(hash) => Outcome::Confirmed(hash),
            Fate::Never(why) => {
                self.standing = Standing::Send(at + AGAIN_WAIT.1);
                Outcome::Failed(why)
            }
            Fate::Later(why) if points::broken("later-is-not-never") => Outcome::Failed(why),
            Fate::Later(why) => {
                self.standing = Standing::Send(at + self.wait);
                let line = format!("{why}; sending it again in {} s", self.wait.as_secs());
                self.wait = (self.wait * 2).min(AGAIN_WAIT.1);
                Outcome::Waiting(line)
            }
            Fate::Unknown(why) if points::broken("unknown-is-not-unsent") => {
                self.standing = Standing::Send(at);
                Outcome::Waiting(why)
            }
            Fate::Unknown(why) => {
                // A look that failed leaves the attempt's own time standing.
                self.standing = Standing::Unknown(since);
                Outcome::Waiting(format!("{why}; perhaps stored, looking for it after the next pulls"))
            }
            Fate::Absent if conclusive || points::broken("judged-late-enough") => {
                self.standing = Standing::Send(at);
                Outcome::Waiting("not stored; sending it again".to_owned())
            }
            Fate::Absent => {
                self.standing = Standing::Unknown(since);
                Outcome::Waiting("not there yet; looking again after the next pull".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_post_is_handed_over_once_and_again_only_after_it_was_not_stored() {
        let now = Instant::now();
        let mut post = Posting::new("text".into(), now);
        assert_eq!(post.due(now), Some(Act::Send));
        assert_eq!(post.due(now), None);
        assert!(matches!(post.fate(Fate::Later("503".into()), now), Outcome::Waiting(_)));
        assert_eq!(post.due(now), None);
        assert_eq!(post.due(now + S), Some(Act::Send));
        assert!(matches!(post.fate(Fate::Later("503".into()), now + S), Outcome::Waiting(_)));
        assert_eq!(post.due(now + 2 * S), None);
        assert_eq!(post.due(now + 3 * S), Some(Act::Send));
        assert_eq!(post.fate(Fate::Stored(None), now + 4 * S), Outcome::Confirmed(None));
    }

    /// C-106: an attempt without answer is judged only by a completion asked 60 s after it ended.
    #[test]
    fn an_unanswered_post_is_sent_again_only_when_shown_absent() {
        let now = Instant::now();
        let mut post = Posting::new("text".into(), now);
        assert_eq!(post.due(now), Some(Act::Send));
        assert!(matches!(post.fate(Fate::Unknown("no answer".into()), now + S), Outcome::Waiting(_)));
        assert_eq!(post.due(now + 999 * S), None);
        assert_eq!(post.completed(now + 60 * S, now + 60 * S), Some(Act::Look));
        assert!(matches!(post.fate(Fate::Absent, now + 60 * S), Outcome::Waiting(_)));
        assert_eq!(post.due(now + 999 * S), None, "the completion was asked too early");
        assert_eq!(post.completed(now + 61 * S, now + 62 * S), Some(Act::Look));
        assert!(matches!(post.fate(Fate::Absent, now + 62 * S), Outcome::Waiting(_)));
        assert_eq!(post.due(now + 62 * S), Some(Act::Send));
    }

    /// C-107: what a post waits for can be shown, since its first failure.
    #[test]
    fn what_a_post_waits_for_is_told_since_when_and_until_when() {
        let now = Instant::now();
        let mut post = Posting::new("text".into(), now);
        assert_eq!(post.waits(), Waiting { unknown: false, since: now, why: None, again: None });
        for (n, why) in [(0, "refused"), (1, "503")] {
            post.due(now + n * S);
            post.fate(Fate::Later(why.into()), now + n * S);
        }
        let again = Some(now + 3 * S);
        assert_eq!(post.waits(), Waiting { unknown: false, since: now, why: Some("503"), again });
        post.due(now + 3 * S);
        post.fate(Fate::Unknown("no answer".into()), now + 4 * S);
        assert_eq!(post.waits(), Waiting { unknown: true, since: now, why: Some("no answer"), again: None });
    }

    #[test]
    fn what_is_found_is_confirmed_at_once() {
        let now = Instant::now();
        let mut post = Posting::perhaps_sent("text".into(), now);
        assert_eq!(post.due(now + 999 * S), None);
        assert_eq!(post.completed(now, now + S), Some(Act::Look));
        assert_eq!(post.fate(Fate::Stored(Some("ab".into())), now + S), Outcome::Confirmed(Some("ab".into())));
    }

    #[test]
    fn the_server_coming_back_cuts_the_wait() {
        let now = Instant::now();
        let mut post = Posting::new("text".into(), now);
        for _ in 0..20 {
            let at = post.next().unwrap_or(now);
            post.due(at);
            assert!(matches!(post.fate(Fate::Later("down".into()), at), Outcome::Waiting(_)));
        }
        assert!(post.next().unwrap_or(now) > now + 500 * S);
        assert_eq!(post.completed(now, now + S), None);
        assert_eq!(post.due(now + S), Some(Act::Send));
    }
}
