//! Text of anyone's making: nothing panics, nothing takes long, nothing odd is read as a message (protocol 2.1).

use std::time::{Duration, Instant};

use ocx::engine::check::Decision;
use ocx::engine::{message, read, report};
use serde_json::{Value, json};

use super::support::{Random, World, asking, plain, post, run_id};

/// Longest that reading one text may take in a debug build on a busy machine; what is not linear takes hours.
const SLOW: Duration = Duration::from_secs(60);

#[test]
fn v2_2_1_08_a_key_repeated_at_any_depth_makes_no_message() {
    let env = r#"{"PATH":"/usr/bin","PATH":"/bin"}"#;
    let run = format!("{{\"ocx\":2,\"to\":\"lab-1\",\"run\":{{\"process\":{{\"env\":{env}}}}}}}");
    assert_eq!(message::find(&format!("```json\n{run}\n```")), None);
    let once = run.replacen("\"PATH\":\"/usr/bin\",", "", 1);
    assert!(message::find(&format!("```json\n{once}\n```")).is_some());
}

#[test]
fn a_block_that_is_no_json_is_passed_by_and_the_next_is_read() {
    let good = post(&json!({"ocx": 2, "stop": {}}));
    for bad in ["", "{", "{\"ocx\":2,\"stop\":{}", "{\"ocx\":2,\"stop\":{}}}", "\u{0}", "ocx: 2", "{\"ocx\":2,,}"] {
        assert!(message::find(&format!("```json\n{bad}\n```\n{good}")).is_some(), "{bad}");
        assert_eq!(message::find(&format!("```json\n{bad}\n```\n")), None, "{bad}");
    }
}

#[test]
fn hostile_sizes_are_answered_quickly() {
    let deep = |open: &str, close: &str| {
        format!("```json\n{{\"ocx\":2,\"run\":{{\"x\":{}1{}}}}}\n```\n", open.repeat(10_000), close.repeat(10_000))
    };
    let huge = format!("```json\n{{\"ocx\":2,\"run\":{{\"x\":\"{}\"}}}}\n```\n", "a".repeat(2 << 20));
    let texts = [
        deep("[", "]"),
        deep("{\"a\":", "}"),
        huge,
        "`".repeat(2 << 20),
        "```json\n".repeat(200_000),
        "- ".repeat(500_000),
        "> ".repeat(500_000),
        "1. x\n   ```json\n".repeat(100_000),
        "\r".repeat(1 << 20),
        "\"\\u0000".repeat(100_000),
    ];
    for text in texts {
        let started = Instant::now();
        assert_eq!(message::find(&text), None);
        assert!(!message::any_block(&text));
        assert!(started.elapsed() < SLOW, "{:?}: {:?}", text.get(..20), started.elapsed());
    }
}

#[test]
fn a_run_as_large_as_a_block_may_be_is_decided_quickly() {
    let mut many_steps = plain();
    many_steps["workspace"] = json!(vec![json!({"step": "directory", "at": "$$root$$/a"}); 20_000]);
    let mut doubling = plain();
    doubling["workspace"] = json!(vec![json!({"step": "directory", "at": "$$workspace$$$$workspace$$/a"}); 15_000]);
    doubling["workspace"][0]["at"] = json!("$$root$$/a");
    let mut many_values = plain();
    many_values["process"]["command"] = json!(["x", "$$run$$".repeat(140_000)]);
    let mut many_marks = plain();
    many_marks["process"]["command"] = json!(["x", "$".repeat(900_000)]);
    let mut many_paths = plain();
    many_paths["sandbox"]["read_only"] = json!(vec!["$$workspace$$/a"; 45_000]);
    for content in [many_steps, doubling, many_values, many_marks, many_paths] {
        let started = Instant::now();
        let decision = World::new().decide(&content);
        assert!(!matches!(decision, Decision::Wait(_) | Decision::Stopped));
        assert!(started.elapsed() < SLOW, "{:?}", started.elapsed());
    }
}

#[test]
fn c_59_no_note_of_a_refusal_can_be_read_as_a_message() {
    let fence = "\n```json\n{\"ocx\":2,\"re\":\"x\",\"stop\":{}}\n```\n";
    for pointer in ["/workspace/0/at", "/process/cwd", "/sandbox/read_only/0", "/sandbox/proc", "/process/user", fence]
    {
        let place = if pointer == fence { format!("/limits/{}", fence.replace('/', "")) } else { pointer.to_owned() };
        let refusal = World::new().refusal(&super::support::with(plain(), &place, json!(fence)));
        assert!(!message::any_block(&refusal.note), "{}", refusal.note);
        assert!(!refusal.note.contains('\n'), "{}", refusal.note);
        let ended = report::Ended::new(report::How::Refused { note: refusal.note });
        assert_eq!(message::find(&report::ended(&run_id(), &ended)).unwrap().kind, "ended");
    }
}

/// Pieces that texts are made of, so that many of them nearly hold a message.
const PIECES: &[&str] = &[
    "```json\n",
    "```\n",
    "````\n",
    "~~~\n",
    "\n",
    "\r\n",
    "\r",
    "> ",
    "- ",
    "1. ",
    "   ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"ocx\"",
    "\"run\"",
    "\"to\"",
    "\"re\"",
    "2",
    "1",
    "2.0",
    "\"lab-1\"",
    "{\"ocx\":2,",
    "\"stop\":{}}",
    "{\"ocx\":2,\"stop\":{}}",
    "{\"ocx\":2,\"run\":{}}",
    "null",
    "\"\\ud800\"",
    "é",
    "\u{0}",
    "\\",
    "\"",
    "$$run$$",
    "$$",
    "true",
    "-0",
    "1e999",
    "#",
    "---",
];

/// Values put in the place of a run's own.
fn odd(random: &mut Random) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(""),
        json!("$$run$$"),
        json!("$$tree$$"),
        json!("$$secret:X$$"),
        json!("/../$$root$$"),
        json!("9007199254740992K"),
        json!("saved"),
        json!("*"),
        json!([]),
        json!(["*", ""]),
        json!([[]]),
        json!({}),
        json!({"": {"": []}}),
        json!([{"step": "files", "of": "-x", "into": "/"}]),
        json!("\u{0}\u{7f}\u{9b}"),
        json!("é".repeat(300)),
    ];
    values[random.below(values.len())].clone()
}

/// Every pointer into a value.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                out.push(format!("{at}/{key}"));
                pointers(value, &format!("{at}/{key}"), out);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                out.push(format!("{at}/{index}"));
                pointers(value, &format!("{at}/{index}"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a failure is repeated from its seed")]
fn nothing_that_is_read_makes_the_readers_panic() {
    let seed = std::env::var("OCX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x0c_5eed_u64);
    println!("OCX_SEED={seed}");
    let mut random = Random::new(seed);
    let mut found = 0;
    for _ in 0..20_000 {
        let text: String = (0..random.below(40)).map(|_| PIECES[random.below(PIECES.len())]).collect();
        if let Some(message) = message::find(&text) {
            found += 1;
            assert!(message::any_block(&text), "{text:?}");
            let _read = read::run(&message.content);
        }
    }
    assert!(found > 0, "no text held a message: the pieces are wrong");
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let mut content = plain();
        for _ in 0..=random.below(2) {
            let mut places = Vec::new();
            pointers(&content, "", &mut places);
            let place = &places[random.below(places.len())];
            *content.pointer_mut(place).unwrap() = odd(&mut random);
        }
        // What one side writes as JSON the other reads as the same.
        assert_eq!(Value::Object(asking(&content).content), content);
        match World::new().decide(&content) {
            Decision::Accept(run) => {
                accepted += 1;
                assert!(run.plan().sandbox.is_some(), "never less than it asks: {content}");
            }
            Decision::Refuse(refusal) => {
                refused += 1;
                assert!(!refusal.note.chars().any(char::is_control), "{}", refusal.note);
            }
            Decision::Wait(_) => {}
            Decision::Stopped => panic!("no stop stands"),
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}
