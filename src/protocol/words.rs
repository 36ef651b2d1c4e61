//! `words!`: an enum, the word each of its values is on the wire, and the list of all, written once.

/// Makes an enum whose values are words of the protocol: `ALL`, `word`, `from_word` and `Display` come with it.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$note])* #[doc = concat!("`", $word, "`")] $value),+
        }

        impl $name {
            /// Every word, in the order of its table.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The word as it is written on the wire.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }

            /// The value whose word this is, exactly.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::protocol::filters::Filter;

    #[test]
    fn every_word_reads_back_as_its_value_and_no_other_text_does() {
        for &filter in Filter::ALL {
            assert_eq!(Filter::from_word(filter.word()), Some(filter));
        }
        assert_eq!(Filter::from_word("Known"), None);
        assert_eq!(Filter::NotItsOwn.to_string(), "not its own");
    }
}
