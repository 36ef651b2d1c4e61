//! The flat form in which a recipe reaches the cell: fixed order, little endian, lengths first, consumed exactly.
//!
//! The cell is root when it reads this, so there is no general parser in it. The writer is the supervisor and the bytes
//! lie in a sealed memfd; the reader still bounds everything, since it costs nothing.

use alloc::ffi::CString;
use alloc::vec::Vec;

/// Largest recipe in bytes: a plan's texts and the filters fit.
pub const RECIPE_BYTES_MAX: usize = 8 << 20;

/// Most items of one list: environment variables, arguments, operations.
pub const ITEMS_MAX: u32 = 65_536;

/// The bytes are no recipe: what was wrong first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

/// Something with a flat form.
pub trait Flat: Sized {
    /// Appends it.
    fn put(&self, to: &mut Vec<u8>);
    /// Takes it from the front.
    ///
    /// # Errors
    /// When the bytes are not one.
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable>;
}

/// What is left to read.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (front, rest) = self.0.split_at_checked(length).ok_or(Unreadable("it ends too early"))?;
        self.0 = rest;
        Ok(front)
    }
}

/// The flat form of `it`.
#[must_use]
pub fn write(it: &impl Flat) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8192);
    it.put(&mut bytes);
    bytes
}

/// Reads exactly one `T` and nothing more.
///
/// # Errors
/// When the bytes are not exactly one.
pub fn read<T: Flat>(bytes: &[u8]) -> Result<T, Unreadable> {
    if bytes.len() > RECIPE_BYTES_MAX {
        return Err(Unreadable("it is too long"));
    }
    let mut reader = Reader(bytes);
    let it = T::get(&mut reader)?;
    if reader.0.is_empty() { Ok(it) } else { Err(Unreadable("bytes are left over")) }
}

macro_rules! whole_numbers {
    ($($ty:ty)*) => {$(
        impl Flat for $ty {
            fn put(&self, to: &mut Vec<u8>) { to.extend_from_slice(&self.to_le_bytes()); }
            fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(from.take(size_of::<Self>())?);
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}
whole_numbers!(u8 u16 u32 u64 i32);

impl Flat for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable("neither true nor false")),
        }
    }
}

impl<const N: usize> Flat for [u32; N] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|it| it.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut all = [0; N];
        for it in &mut all {
            *it = u32::get(from)?;
        }
        Ok(all)
    }
}

fn put_length(length: usize, to: &mut Vec<u8>) {
    // A length that does not fit is written as one no reader accepts: the launch fails whole.
    u32::try_from(length).unwrap_or(u32::MAX).put(to);
}

impl Flat for CString {
    fn put(&self, to: &mut Vec<u8>) {
        put_length(self.as_bytes().len(), to);
        to.extend_from_slice(self.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let length = u32::get(from)?;
        let bytes = from.take(usize::try_from(length).ok().ok_or(Unreadable("a text is too long"))?)?;
        Self::new(bytes).ok().ok_or(Unreadable("a text holds a zero byte"))
    }
}

impl<T: Flat> Flat for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(it) = self {
            it.put(to);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Item> Flat for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        put_length(self.len(), to);
        self.iter().for_each(|it| it.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let count = u32::get(from)?;
        if count > ITEMS_MAX {
            return Err(Unreadable("a list is too long"));
        }
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl Flat for Vec<u8> {
    fn put(&self, to: &mut Self) {
        put_length(self.len(), to);
        to.extend_from_slice(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let length = u32::get(from)?;
        let length = usize::try_from(length).ok().ok_or(Unreadable("a text is too long"))?;
        from.take(length).map(<[u8]>::to_vec)
    }
}

/// What lists hold item by item; bytes have a form of their own.
pub trait Item: Flat {}
impl Item for u32 {}
impl Item for CString {}
impl Item for crate::op::Op {}
