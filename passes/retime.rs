//! `retime` changes all times together: by an offset, by a factor, or so that the first sample is at 0.

use clap::Args;
use perfx_format::features::{ClockData, SampleTime};
use perfx_format::read::{Batch, Recording};
use perfx_format::record::time::{ClockChange, change_times};
use perfx_format::{Feature, Kinds, Layouts, Record, RecordType, Time};
use perfx_pipeline::{
    Begin, Context as _, Emit, Error, Fork, Interest, Level, Needs, Pass, Result, Rewrite, Session, Stage,
    Survey, bail, counted,
};

use crate::support::factor::Factor;
use crate::support::options::{PassCommand, PassOptions};

/// Change all times of a recording by an offset or a factor, or move the first sample to 0
///
/// Every time becomes time × scale + offset, rounded down. This changes the times of samples and other
/// records, those in features SAMPLE_TIME and CLOCK_DATA, and the conversion from the counter of an AUX
/// trace to times (TIME_CONV, AUXTRACE_INFO), but not times inside tracepoint data. The output is not
/// compressed.
/// (The offset of join is subtracted instead: it is how far an input's clock is ahead.)
///
/// A time below 1 ns is an error, because perf treats 0 as no time. With --zero, which excludes --offset, the
/// first sample and all records before it get the time 1 ns.
///
/// Examples:
///   perfx retime --zero perf.data -o from-zero.data
///   perfx retime --offset -3600000000000 perf.data -o an-hour-earlier.data
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(verbatim_doc_comment)]
pub struct Retime {
    /// Nanoseconds to add to every time, after --scale
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = nanoseconds, allow_hyphen_values = true)]
    pub offset: i64,
    /// Multiply every time by this factor, a decimal number
    #[arg(long, value_name = "F", default_value = "1")]
    pub scale: Factor,
    /// Subtract the time of the first sample from every time
    #[arg(long, conflicts_with = "offset")]
    pub zero: bool,
}

impl PassOptions for Retime {
    const NAME: &'static str = "retime";
    const ABOUT: &'static str = "change all times by an offset or a factor, or move the first sample to 0";
    const COMMAND: Option<PassCommand> =
        Some(PassCommand { group: "Cut and join", one_of: &["offset", "scale", "zero"] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(self))
    }
}

fn nanoseconds(text: &str) -> Result<i64> {
    text.parse()
        .map_err(|_| Error::new(format!("`{text}` is not a whole number of nanoseconds (1 ms is 1000000)")))
}

struct FirstSample {
    retime: Retime,
    time: Option<u64>,
}

struct ChangeTimes {
    change: ClockChange,
    early: u64,
    /// The time of the last record, before and after the change.
    last: Option<(u64, u64)>,
    /// The records that now have the same time as the record before them, but did not before.
    collapsed: u64,
    has_times: bool,
}

impl Pass for Retime {
    fn name(&self) -> &'static str {
        Retime::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = if self.zero { vec![Kinds::of(&[RecordType::SAMPLE])] } else { Vec::new() };
        Needs { records: Kinds::ALL, surveys, decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        if self.zero {
            return Stage::survey(FirstSample { retime: *self, time: None });
        }
        if self.offset == 0 && self.scale == Factor::default() {
            return Stage::begin(|_| bail!("retime changes nothing without --offset, --scale or --zero"));
        }
        ChangeTimes::stage(self.change(self.offset.into()))
    }
}

impl Retime {
    fn change(&self, offset: i128) -> ClockChange {
        let Factor { numerator, denominator } = self.scale;
        ClockChange { numerator, denominator, offset, stop_at_first: self.zero }
    }
}

impl Survey for FirstSample {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let time = layouts.time(record).map(Time::ns);
        self.time = self.time.into_iter().chain(time).min();
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Some(first) = self.time else {
            session.report.say(Level::Warning, "no sample has a time, so nothing is moved");
            return Ok(Stage::copy());
        };
        let scaled = self.retime.change(0).duration(first).context("the factor is too large")?;
        // perf treats 0 as no time.
        Ok(ChangeTimes::stage(self.retime.change(1 - i128::from(scaled))))
    }
}

impl Fork for FirstSample {
    fn fork(&self) -> FirstSample {
        FirstSample { retime: self.retime, time: None }
    }

    fn absorb(&mut self, later: FirstSample) {
        self.time = self.time.into_iter().chain(later.time).min();
    }
}

impl ChangeTimes {
    fn stage(change: ClockChange) -> Stage {
        Stage::begin(move |begin| {
            let this = ChangeTimes { change, early: 0, last: None, collapsed: 0, has_times: false };
            this.features(begin)?;
            Ok(Stage::rewrite(this))
        })
    }

    /// Changes SAMPLE_TIME, and CLOCK_DATA's time that corresponds to a wall-clock time.
    fn features(&self, session: &mut Begin<'_>) -> Result<()> {
        let endian = session.endian;
        let name = session.name.clone();
        let moved = |feature: Feature, time: u64| {
            let what = || {
                format!(
                    "{name}: feature {feature}: its time {time} would be before 1 or too large: choose another --offset or --scale"
                )
            };
            self.change.time(time).with_context(what)
        };
        let recorded =
            session.feature(Feature::SAMPLE_TIME).and_then(|section| SampleTime::read(section, endian));
        // Values that are not times stay.
        if let Some((first, last)) = recorded.and_then(|recorded| recorded.times()) {
            let times = SampleTime {
                first_ns: moved(Feature::SAMPLE_TIME, first)?,
                last_ns: moved(Feature::SAMPLE_TIME, last)?,
            };
            session.set_feature(Feature::SAMPLE_TIME, times.write(endian));
        }
        if let Some(clock) =
            session.feature(Feature::CLOCK_DATA).and_then(|section| ClockData::read(section, endian))
        {
            let moment = self.change.times_of_one_moment(clock.clock_ns, clock.wall_ns);
            let what = || format!("{name}: feature {}: its times would be too large", Feature::CLOCK_DATA);
            let (clock_ns, wall_ns) = moment.with_context(what)?;
            let clock = ClockData { clock_ns, wall_ns, ..clock };
            session.set_feature(Feature::CLOCK_DATA, clock.write(endian));
        }
        Ok(())
    }
}

impl ChangeTimes {
    /// Counts records whose times can no longer be distinguished.
    fn count(&mut self, time: u64) {
        let early = self.change.is_too_early(time);
        self.early += u64::from(early);
        let Some(new) = self.change.time(time).filter(|_| time != 0 && !early) else { return };
        let is_collapsed = self.last.is_some_and(|last| last.0 != time && last.1 == new);
        self.collapsed += u64::from(is_collapsed);
        self.last = Some((time, new));
    }
}

impl Rewrite for ChangeTimes {
    fn begin_batch(&mut self, _batch: &Batch) -> Interest {
        self.last = None;
        Interest::AsDeclared
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layout = out.layouts().layout_of_any(&record);
        if let Some(time) = layout.and_then(|layout| layout.recorded_time(&record)) {
            self.count(time);
        }
        let mut done = Ok(());
        let has_times = &mut self.has_times;
        out.patch(record, |bytes| {
            done = change_times(&record, layout, &self.change, bytes);
            *has_times = *has_times || bytes != record.bytes();
        })?;
        done.map_err(|time| {
            record
                .error(format!(
                    "its time {time} would be before 1 or too large: choose another --offset or --scale"
                ))
                .into()
        })
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if !self.has_times {
            session.report.say(Level::Warning, "no record has a time, so nothing is moved");
        }
        if self.early > 0 {
            let records = counted(self.early, "record", "records");
            let what =
                format!("{records} from before the first sample now have the time of the first sample");
            session.report.say(Level::Info, what);
        }
        if self.collapsed > 0 {
            let records = counted(self.collapsed, "record has", "records have");
            let what = format!(
                "{records} the same time as the record before, because the factor is too small: choose a larger --scale"
            );
            session.report.say(Level::Loss, what);
        }
        Ok(())
    }
}

impl Fork for ChangeTimes {
    fn fork(&self) -> ChangeTimes {
        ChangeTimes { early: 0, last: None, collapsed: 0, has_times: false, ..*self }
    }

    fn absorb(&mut self, later: ChangeTimes) {
        self.early += later.early;
        self.collapsed += later.collapsed;
        self.has_times |= later.has_times;
    }
}

#[cfg(test)]
mod tests {

    use perfx_format::Endian;

    use super::*;
    use crate::support::tiny::{FIELDS, Ran, file, ran, sample};

    fn retimed(options: &str) -> Result<Ran> {
        let samples = [sample(7, 2_000, 1), sample(7, 1_000, 1), sample(7, 0, 1), sample(7, 1_001, 1)];
        let times = SampleTime { first_ns: 1_000, last_ns: 2_000 }.write(Endian::Little);
        let clock = ClockData { clockid: 1, wall_ns: 5_000, clock_ns: 1_500 }.write(Endian::Little);
        let features = [(Feature::SAMPLE_TIME, times), (Feature::CLOCK_DATA, clock)];
        ran(&format!("retime:{options}"), file(FIELDS, 0, &samples, &features))
    }

    fn times(mut ran: Ran) -> (Vec<u64>, [u64; 2], [u64; 2]) {
        let times =
            ran.feature(Feature::SAMPLE_TIME).and_then(|section| SampleTime::read(section, Endian::Little));
        let clock =
            ran.feature(Feature::CLOCK_DATA).and_then(|section| ClockData::read(section, Endian::Little));
        let (times, clock) = (times.unwrap(), clock.unwrap());
        let of_records = ran.bodies().into_iter().map(|body| body[2]).collect();
        (of_records, [times.first_ns, times.last_ns], [clock.clock_ns, clock.wall_ns])
    }

    #[test]
    fn all_times_move_together() {
        let moved = |options| times(retimed(options).unwrap());
        assert_eq!(moved("offset=-999"), (vec![1_001, 1, 0, 2], [1, 1_001], [501, 5_000]));
        assert_eq!(
            moved("scale=2.5:offset=1"),
            (vec![5_001, 2_501, 0, 2_503], [2_501, 5_001], [3_751, 5_000])
        );
        assert_eq!(moved("zero"), (vec![1_001, 1, 0, 2], [1, 1_001], [501, 5_000]));
        assert_eq!(moved("zero:scale=2"), (vec![2_001, 1, 0, 3], [1, 2_001], [1_001, 5_000]));
    }

    #[test]
    fn what_can_not_be_moved_is_an_error_or_reported() {
        for (options, part) in [
            ("offset=-1000", "its time 1000 would be before 1"),
            ("offset=0", "retime changes nothing"),
            ("offset=x", "`x` is not a whole number of nanoseconds"),
        ] {
            let error = retimed(options).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
        // 1000 and 1001 become the same time, but the record without a time is between them.
        let said = |ran: Ran| ran.said.join("\n");
        assert_eq!(
            said(retimed("scale=0.5").unwrap()),
            "Loss: 1 record has the same time as the record before, because the factor is too small: choose a larger --scale"
        );
        let early = [sample(7, 50, 1), sample(7, 100, 1)];
        let timeless = |records: &[Vec<u8>]| file(FIELDS & !perfx_format::sample_type::TIME, 0, records, &[]);
        assert_eq!(
            said(ran("retime:zero", timeless(&early)).unwrap()),
            "Warning: no sample has a time, so nothing is moved"
        );
        assert_eq!(
            said(ran("retime:offset=5", timeless(&early)).unwrap()),
            "Warning: no record has a time, so nothing is moved"
        );
    }

    #[test]
    fn records_from_before_the_first_sample_get_its_time() {
        let mut this = ChangeTimes {
            change: Retime { zero: true, ..Retime::default() }.change(-99),
            early: 0,
            last: None,
            collapsed: 0,
            has_times: false,
        };
        [99, 100, 98, 0, 101].into_iter().for_each(|time| this.count(time));
        assert_eq!((this.early, this.collapsed), (2, 0));
        let mut later = this.fork();
        later.change.numerator = 1;
        later.change.denominator = 2;
        later.change.offset = 0;
        [100, 101, 101, 100, 102].into_iter().for_each(|time| later.count(time));
        assert_eq!((later.early, later.collapsed), (0, 2));
        this.absorb(later);
        assert_eq!((this.early, this.collapsed, this.has_times), (2, 2, false));
    }
}
