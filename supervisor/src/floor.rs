//! Whether the free space of this host is below its floor (decisions C-84).

use std::path::Path;

use supervisor::wire::floor::{Floor, PLACES};

use crate::settings::{setting, size};

/// Reads `settings/floor`: bytes, with K, M or G, or a percentage.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read(root: &Path) -> Result<Floor, String> {
    let what = "neither a number of bytes, such as 512M, nor of hundredths, such as 5%";
    Ok(setting(root, "floor", what, parse)?.unwrap_or(Floor::Usual))
}

fn parse(text: &str) -> Option<Floor> {
    match text.strip_suffix('%') {
        Some(number) => number.parse().ok().filter(|it| *it < 100 && !number.starts_with('+')).map(Floor::Percent),
        None => size(text).map(Floor::Bytes),
    }
}

/// Why no run is to be taken now, if so.
pub(crate) fn passed(floor: Floor, root: &Path) -> Option<String> {
    PLACES.iter().find_map(|place| {
        let path = root.join(place);
        // One that cannot be asked shows at the first write.
        let about = rustix::fs::statvfs(&path).ok()?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        floor.why(&path.display().to_string(), free, about.f_blocks.saturating_mul(about.f_frsize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c84_the_floor_is_read_in_bytes_or_hundredths() {
        assert_eq!(parse("0"), Some(Floor::Bytes(0)));
        assert_eq!(parse("512M"), Some(Floor::Bytes(512 << 20)));
        assert_eq!(parse("2G"), Some(Floor::Bytes(2 << 30)));
        assert_eq!(parse("5%"), Some(Floor::Percent(5)));
        for wrong in ["", "%", "G", "-1", "100%", "1.5G", "99999999999G", "5 %", "1T", "+5", "+5%"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
