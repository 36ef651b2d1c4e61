//! An initramfs: the few entries of one, in the "newc" form of the kernel's `initramfs-buffer-format`.

/// An archive under way.
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
/// What every field begins on.
const ALIGN: usize = 4;

impl Cpio {
    /// A directory; its parents come before it.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    /// A file, executable.
    pub(crate) fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), data);
    }

    /// A character device, which the kernel opens for PID 1 before there is any /dev.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[]);
    }

    fn entry(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), data: &[u8]) {
        let path = path.trim_start_matches('/');
        self.entries += 1;
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let name = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }

    /// The archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_its_header_name_and_data_each_padded() {
        let mut cpio = Cpio::default();
        cpio.file("/init", b"abcde");
        let bytes = cpio.finish();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with("070701"));
        assert_eq!(&text[14..22], "000081ED");
        assert_eq!(&text[54..62], "00000005");
        assert_eq!(&text[94..102], "00000005");
        assert_eq!(&text[110..116], "init\0\0");
        // 110 of header and 5 of name and zero make 115, so data begins at 116.
        assert_eq!(&text[116..121], "abcde");
        assert_eq!(&text[124..130], "070701");
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
        assert_eq!(bytes.len() % ALIGN, 0);
    }
}
