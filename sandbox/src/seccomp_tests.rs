#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a panic is how a test fails")]
use super::*;

/// Runs a filter as the kernel does.
fn answer(program: &[u8], architecture: u32, call: u32, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&call.to_le_bytes());
    data.extend_from_slice(&architecture.to_le_bytes());
    data.extend_from_slice(&[0; 8]);
    arguments.iter().for_each(|it| data.extend_from_slice(&it.to_le_bytes()));
    let (mut at, mut held) = (0_usize, 0_u32);
    loop {
        let it = &program[at * 8..at * 8 + 8];
        let (code, yes, no) = (u16::from_le_bytes([it[0], it[1]]), usize::from(it[2]), usize::from(it[3]));
        let k = u32::from_le_bytes(it[4..8].try_into().unwrap());
        let over = |holds: bool| if holds { yes } else { no };
        at += 1 + match code {
            LOAD => {
                let from = usize::try_from(k).unwrap();
                held = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                0
            }
            JUMP => usize::try_from(k).unwrap(),
            IF_EQUAL => over(held == k),
            IF_AT_LEAST => over(held >= k),
            IF_BITS => over(held & k != 0),
            RETURN => return k,
            _ => panic!("code {code:x}"),
        };
    }
}

fn here(call: i64, arguments: [u64; 6]) -> u32 {
    answer(&filter(), NATIVE, u32::try_from(call).unwrap(), arguments)
}

#[test]
fn every_rule_without_tests_denies_and_every_other_call_is_allowed() {
    let program = filter();
    assert!(program.len() / 8 <= crate::sys::FILTER_INSTRUCTIONS_MAX);
    for call in 0..600_u32 {
        let whole = rules().find(|it| it.call == i64::from(call) && it.when.is_empty());
        let some = rules().any(|it| it.call == i64::from(call));
        let got = answer(&program, NATIVE, call, [0; 6]);
        match whole {
            Some(rule) => assert_eq!(got, ERROR | u32::from(rule.answer), "call {call}"),
            None if i64::from(call) > NEWEST => assert_eq!(got, ERROR | u32::from(ENOSYS), "call {call}"),
            None if !some => assert_eq!(got, ALLOW, "call {call}"),
            None => {}
        }
    }
}

#[test]
fn the_protocol_process_is_denied_all_that_runs_are_and_its_own_list() {
    let program = node_filter();
    assert!(program.len() / 8 <= crate::sys::FILTER_INSTRUCTIONS_MAX);
    for call in 0..600_u32 {
        let of_a_run = answer(&filter(), NATIVE, call, [0; 6]);
        let whole = NODE_TOO.iter().find(|it| it.call == i64::from(call) && it.when.is_empty());
        let got = answer(&program, NATIVE, call, [0; 6]);
        let expected =
            if of_a_run == ALLOW { whole.map_or(ALLOW, |it| ERROR | u32::from(it.answer)) } else { of_a_run };
        assert_eq!(got, expected, "call {call}");
    }
    let clone = |flags| answer(&program, NATIVE, u32::try_from(libc::SYS_clone).unwrap(), [flags, 0, 0, 0, 0, 0]);
    for flag in [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        assert_eq!(clone(flag | 0x11), ERROR | u32::from(EPERM), "{flag:x}");
    }
    // What a C library makes a thread and a child with.
    assert_eq!([clone(0x3d_0f00), clone(0x4111)], [ALLOW; 2]);
}

#[test]
fn where_sandboxes_may_be_nested_what_makes_them_is_let_through_and_nothing_else() {
    let (strict, nested) = (filter(), nested_filter());
    for call in 0..600_u32 {
        let answers = [&strict, &nested].map(|it| answer(it, NATIVE, call, [u64::from(NEW_USER); 6]));
        let differs = NESTED.contains(&i64::from(call));
        assert_eq!(answers[0] != answers[1], differs, "call {call}");
        assert!(!differs || answers[1] == ALLOW, "call {call}");
    }
}

#[test]
fn another_architecture_is_killed_and_x32_is_absent() {
    assert_eq!(answer(&filter(), 0x4000_0003, 0, [0; 6]), KILL);
    assert_eq!(answer(&filter(), NATIVE, 0x4000_0001, [0; 6]), ERROR | u32::from(ENOSYS));
}

#[test]
fn arguments_are_told_apart_by_their_low_half() {
    let eperm = ERROR | u32::from(EPERM);
    let high = 0xffff_ffff_0000_0000;
    assert_eq!(here(libc::SYS_ioctl, [0, 0x5412 | high, 0, 0, 0, 0]), eperm);
    assert_eq!(here(libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]), ALLOW); // TIOCGWINSZ
    assert_eq!(here(libc::SYS_clone, [0x1000_0011, 0, 0, 0, 0, 0]), eperm);
    assert_eq!(here(libc::SYS_clone, [0x11, 0, 0, 0, 0, 0]), ALLOW);
    for family in [1, 2, 10, 16] {
        assert_eq!(here(libc::SYS_socket, [family, 1, 0, 0, 0, 0]), ALLOW);
    }
    for family in [0, 17, 38, 40, 44] {
        assert_eq!(here(libc::SYS_socket, [family, 1, 0, 0, 0, 0]), ERROR | u32::from(EAFNOSUPPORT));
    }
    assert_eq!(here(libc::SYS_socket, [16, 3, 12, 0, 0, 0]), ERROR | u32::from(EPROTONOSUPPORT)); // NETFILTER
    assert_eq!(here(libc::SYS_socket, [2, 1, 6, 0, 0, 0]), ALLOW); // TCP, by its number
    assert_eq!(here(libc::SYS_personality, [0x40_0000, 0, 0, 0, 0, 0]), eperm);
    assert_eq!(here(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn a_set_id_mode_is_denied_only_where_it_is_read() {
    let eperm = ERROR | u32::from(EPERM);
    assert_eq!(here(libc::SYS_fchmodat, [0, 0, 0o4755, 0, 0, 0]), eperm);
    assert_eq!(here(libc::SYS_fchmodat, [0, 0, 0o2755, 0, 0, 0]), ALLOW);
    assert_eq!(here(libc::SYS_openat, [0, 0, 0o101, 0o4755, 0, 0]), eperm);
    assert_eq!(here(libc::SYS_openat, [0, 0, 0, 0o4755, 0, 0]), ALLOW); // no file is made: the mode is any register's rest
}

#[test]
fn an_init_may_do_what_it_does_and_nothing_else() {
    let program = init_filter();
    for call in 0..600_u32 {
        let expected = if INIT.contains(&i64::from(call)) { ALLOW } else { KILL };
        assert_eq!(answer(&program, NATIVE, call, [0; 6]), expected, "call {call}");
    }
    assert_eq!(answer(&program, 0x4000_0003, 0, [0; 6]), KILL);
}
