//! Values as bytes: little-endian, every length checked before it is believed.

use alloc::vec::Vec;

/// A message that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends values to a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        // Nothing longer than MESSAGE_BYTES is ever sent.
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }

    pub(crate) fn list<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(values.len() as u32);
        for value in values {
            each(self, value);
        }
    }
}

/// Takes values from a message.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

pub(crate) type Read<T> = Result<T, Malformed>;

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| Malformed)
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| Malformed)
    }

    pub(crate) fn bytes(&mut self) -> Read<Vec<u8>> {
        let length = self.u32()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }

    pub(crate) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.u32()? as usize;
        // Every element takes at least a byte, so a lying count cannot reserve memory.
        if count > self.0.len() {
            return Err(Malformed);
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn end<T>(&self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

/// A message: one packet, or the content of one memory file.
pub(crate) trait Message: Sized {
    /// Appends the message.
    fn put(&self, writer: &mut Writer);

    /// Takes the message.
    fn get(reader: &mut Reader<'_>) -> Read<Self>;

    /// The bytes of the message.
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.put(&mut writer);
        writer.0
    }

    /// The message of exactly these bytes.
    fn decode(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader(bytes);
        let message = Self::get(&mut reader)?;
        reader.end(message)
    }
}
