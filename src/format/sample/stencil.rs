//! Builds consecutive samples that differ in few parts, like those of a hardware trace.

use std::ops::Range;

use super::Sample;
use crate::sample_type as st;
use crate::{Endian, HEADER_SIZE, Layout, Origin, Record, Result};

/// A sample that stands for all that differ from it in the parts of [`TemplateFields`] only.
///
/// ```
/// use perfx_format::sample::{NewSample, Stencil, TemplateFields};
/// use perfx_format::{Attr, Endian, Layout, sample_type};
///
/// let (mut attr, endian) = (Attr::default(), Endian::Little);
/// attr.sample_type = sample_type::IP | sample_type::TID | sample_type::RAW;
/// let sample = |ip, tid| NewSample { ip, pid: 7, tid, raw: &[1], ..NewSample::default() };
/// let first = sample(0x40_0000, 7).build(&attr, endian).expect("it is small");
/// let stencil = Stencil::of(&first, &Layout::new(&attr), endian).expect("all its parts have their places");
///
/// let mut second = Vec::new();
/// stencil.write(TemplateFields { ip: 0x40_0010, raw: &[1, 0, 0, 0], time: 0, addr: 0, period: 0 }, &mut second);
/// assert_eq!(Some(&second), sample(0x40_0010, 7).build(&attr, endian).as_ref());
/// ```
#[derive(Clone, Debug)]
pub struct Stencil {
    bytes: Vec<u8>,
    ip: Option<usize>,
    time: Option<usize>,
    addr: Option<usize>,
    period: Option<usize>,
    raw: Option<Range<usize>>,
    endian: Endian,
}

/// The parts in which samples differ. Parts that their event does not record are 0 or empty.
#[allow(missing_docs, reason = "the names are those of `Sample`")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TemplateFields<'a, Raw = u8> {
    pub ip: u64,
    pub time: u64,
    pub addr: u64,
    pub period: u64,
    /// Raw data, of the same size in all samples: as stored, or as 32-bit numbers.
    pub raw: &'a [Raw],
}

impl<'a> TemplateFields<'a> {
    /// Sets the parts that the sample has.
    #[inline]
    pub fn set_in(self, sample: &mut Sample<'a>) {
        sample.ip = sample.ip.and(Some(self.ip));
        sample.time = sample.time.and(Some(self.time));
        sample.addr = sample.addr.and(Some(self.addr));
        sample.period = sample.period.and(Some(self.period));
        sample.raw = sample.raw.and(Some(self.raw));
    }
}

const LISTS: u64 =
    st::READ | st::CALLCHAIN | st::BRANCH_STACK | st::REGS_USER | st::STACK_USER | st::REGS_INTR | st::AUX;

const WORD: usize = size_of::<u64>();

impl Stencil {
    /// The template of samples like this one, with this layout. `None` if its raw data has no fixed position,
    /// or if it has lists, such as branches or registers: samples with lists are seldom alike.
    pub fn of(sample: &[u8], layout: &Layout, endian: Endian) -> Option<Stencil> {
        let fixed = usize::from(layout.sample.size).max(HEADER_SIZE);
        let is_whole = sample.len() >= fixed && sample.len().is_multiple_of(WORD);
        if !is_whole || layout.sample_type & LISTS != 0 {
            return None;
        }
        let fields = &layout.sample;
        let [ip, time, addr, period] =
            [fields.ip, fields.time, fields.addr, fields.period].map(|at| at.map(usize::from));
        let mut raw = None;
        if layout.sample_type & st::RAW != 0 {
            let start = fixed + size_of::<u32>();
            let end = start.checked_add(endian.u32(sample, fixed)? as usize)?;
            if !end.is_multiple_of(WORD) || end > sample.len() {
                return None;
            }
            raw = Some(start..end);
        }
        Some(Stencil { bytes: sample.to_vec(), ip, time, addr, period, raw, endian })
    }

    /// The sample that stands for the others.
    ///
    /// # Errors
    ///
    /// It is no record.
    pub fn record(&self) -> Result<Record<'_>> {
        Record::new(&self.bytes, &[], Origin::Synthetic, self.endian)
    }

    /// Its byte order.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Appends a sample with these parts. Longer raw data is cut; after shorter data, the old end stays.
    #[inline]
    pub fn write(&self, sample: TemplateFields<'_>, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        let bytes = &mut out[begin..];
        let mut set = |at: Option<usize>, word| at.and_then(|at| self.endian.set_u64(bytes, at, word));
        set(self.ip, sample.ip);
        set(self.time, sample.time);
        set(self.addr, sample.addr);
        set(self.period, sample.period);
        if let Some(raw) = self.raw.clone().and_then(|raw| bytes.get_mut(raw)) {
            let size = raw.len().min(sample.raw.len());
            raw[..size].copy_from_slice(&sample.raw[..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewSample;
    use super::*;
    use crate::Attr;

    #[test]
    fn a_stencil_writes_complete_samples() {
        for endian in [Endian::Little, Endian::Big] {
            let sample_type = st::IDENTIFIER | st::IP | st::TID | st::TIME | st::ADDR | st::CPU | st::PERIOD;
            let attr = Attr { sample_type: sample_type | st::RAW | st::WEIGHT, ..Attr::default() };
            let layout = Layout::new(&attr);
            let raw = [1, 2, 3];
            let new = NewSample { ip: 1, tid: 2, time: 3, addr: 4, id: 5, period: 6, ..NewSample::default() };
            let new = NewSample { cpumode: 2, cpu: 7, weight: 8, raw: &raw, ..new };
            let stencil = Stencil::of(&new.build(&attr, endian).unwrap(), &layout, endian).unwrap();
            let record = stencil.record().unwrap();
            let mut sample = Sample::parse(&record, &layout).unwrap();
            let raw = [9, 10, 11];
            let other = NewSample { ip: 12, time: 13, addr: u64::MAX, period: 0, raw: &raw, ..new };
            let raw = raw.map(|word| endian.bytes_u32(word)).concat();
            let fields = TemplateFields { ip: 12, time: 13, addr: u64::MAX, period: 0, raw: &raw };
            let mut written = vec![1];
            stencil.write(fields, &mut written);
            assert_eq!(written[1..], other.build(&attr, endian).unwrap());
            TemplateFields { ip: 14, raw: &[15], ..fields }.set_in(&mut sample);
            assert_eq!((sample.ip, sample.time, sample.raw), (Some(14), Some(13), Some(&[15][..])));
            let mut without = Sample { ip: None, raw: None, ..sample };
            fields.set_in(&mut without);
            assert_eq!((without.ip, without.time, without.raw), (None, Some(13), None));
        }
    }

    #[test]
    fn a_sample_without_fixed_places_is_not_a_stencil() {
        let of = |sample: &[u8], sample_type| {
            Stencil::of(sample, &Layout::new(&Attr { sample_type, ..Attr::default() }), Endian::Little)
        };
        let raw = |size: u32| [&[0; 16][..], &size.to_le_bytes(), &[0; 12]].concat();
        assert!(of(&raw(12), st::IP | st::RAW).is_some());
        for size in [13, 16, 20, u32::MAX] {
            assert!(of(&raw(size), st::IP | st::RAW).is_none(), "{size}");
        }
        assert!(of(&raw(4), st::IP | st::RAW | st::CALLCHAIN).is_none());
        assert!(of(&raw(4), st::IP | st::RAW | st::READ).is_none());
        assert!(of(&[0; 24], st::IP | st::BRANCH_STACK).is_none());
        assert!(of(&[0; 12], st::IP).is_none());
        assert!(of(&[0; 8], st::IP | st::TIME).is_none());
    }
}
