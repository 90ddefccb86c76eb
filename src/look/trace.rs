//! Shows raw data of tracepoints like `perf script`: by the kernel's print format, like printf.

mod field_text;
mod notation;
mod number;
mod parse;
mod text;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use perfx_format::features::TracingData;
use perfx_format::header::Features;
use perfx_format::tracepoint::{NamedField, TraceFieldKind, TraceFormat, TraceValue};
use perfx_format::{ByTracepoint, Endian, Event, Feature, HexNumber, hex, until_nul};

use crate::render::readable;
pub use field_text::FieldText;
use parse::{Parts, parse};
pub use text::FindFunction;
use text::{TEXT_MAX, Values, WORK_MAX};

/// Maximum length of a format, bytes: a sample's text takes time in proportion to it.
const FORMAT_MAX: usize = 1 << 14;

/// A value as text.
pub fn value_text(value: TraceValue<'_>) -> String {
    match value {
        TraceValue::Signed(number) => number.to_string(),
        TraceValue::Unsigned(number) => number.to_string(),
        TraceValue::Pointer(number) => HexNumber::new(number).as_str().to_owned(),
        TraceValue::Text(bytes) => {
            let text = until_nul(bytes);
            match str::from_utf8(text).is_ok_and(|text| !text.contains(char::is_control)) {
                true => readable(text),
                false => hex(bytes),
            }
        }
        TraceValue::Bytes(bytes) => hex(bytes),
    }
}

/// The printers of all tracepoints whose format is in the recording.
pub fn printers<'t>(
    events: &[Event],
    features: &'t Features,
    endian: Endian,
) -> ByTracepoint<TracePrinter<'t>> {
    let tracing = features.get(&Feature::TRACING_DATA).and_then(|section| TracingData::read(section));
    let kernel = Arc::new(tracing.map_or_else(Kernel::default, |tracing| Kernel::new(&tracing)));
    ByTracepoint::new(events, features, endian, |format| TracePrinter::new(format, endian, &kernel))
}

#[derive(Clone, Debug)]
struct Kernel {
    /// Bytes.
    long: u8,
    texts: HashMap<u64, String>,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel { long: 8, texts: HashMap::new() }
    }
}

impl Kernel {
    fn new(tracing: &TracingData<'_>) -> Kernel {
        let long = if tracing.long_size == 4 { 4 } else { 8 };
        // `0xffffffff81c24a40 : "text\n"`
        let texts = tracing.printk.split(|&byte| byte == b'\n').filter_map(|line| {
            let (address, text) = str::from_utf8(line).ok()?.split_once(':')?;
            let address = u64::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
            let text = text.trim_start();
            let text = text.strip_prefix('"').unwrap_or(text);
            let text = text.strip_suffix('"').unwrap_or(text);
            Some((address, readable(text.strip_suffix("\\n").unwrap_or(text).as_bytes())))
        });
        Kernel { long, texts: texts.collect() }
    }
}

/// Shows the samples of a tracepoint.
#[derive(Clone, Debug)]
pub struct TracePrinter<'t> {
    fields: Vec<NamedField<'t>>,
    /// The parts of the text, or why the format can't be used.
    parts: Result<Parts, String>,
    endian: Endian,
    kernel: Arc<Kernel>,
}

impl<'t> TracePrinter<'t> {
    fn new(format: &TraceFormat<'t>, endian: Endian, kernel: &Arc<Kernel>) -> TracePrinter<'t> {
        // Damaged formats may repeat a name, which tables refuse.
        let mut known = HashSet::new();
        let named = format.fields().filter(|field| known.insert(field.name));
        let fields: Vec<NamedField<'t>> = named.collect();
        let text = str::from_utf8(format.text).ok().and_then(|text| text.split_once("print fmt:"));
        let parts = match text {
            Some((_, text)) if text.len() <= FORMAT_MAX => parse(text, &fields, kernel.long),
            Some(_) => Err("the format is too long".to_owned()),
            None => Err("there is no format".to_owned()),
        };
        TracePrinter { fields, parts, endian, kernel: kernel.clone() }
    }

    /// The fields of the tracepoint, each name once.
    pub fn fields(&self) -> &[NamedField<'t>] {
        &self.fields
    }

    /// Why the kernel's print format can't be used; each field is then shown with its name.
    pub fn why_by_field(&self) -> Option<&str> {
        self.parts.as_ref().err().map(String::as_str)
    }

    /// Names in the print format whose values are not recorded. As in perf, variables count as 0; names of
    /// unknown constants are not shown.
    pub fn unknown_names(&self) -> &[String] {
        self.parts.as_ref().map_or(&[], |parts| &parts.unknown)
    }

    /// The text of a sample with this raw data; `functions` names addresses in the kernel.
    pub fn text(&self, raw: &[u8], functions: &mut FindFunction<'_>) -> String {
        // Room for most texts.
        let mut text = String::with_capacity(128);
        if let Ok(parts) = &self.parts {
            let (fields, endian, texts) = (&self.fields[..], self.endian, &self.kernel.texts);
            let mut values = Values { fields, raw, endian, texts, functions, work: WORK_MAX };
            if parts.parts.iter().try_for_each(|part| values.part(part, &mut text)).is_some() {
                return text;
            }
        }
        // These are the words of perf, which scripts may search for.
        "[FAILED TO PARSE]".clone_into(&mut text);
        for field in self.fields.iter().filter(|field| !field.is_common()) {
            let Some(value) = self.by_field(field, raw) else { continue };
            text += &format!(" {}={value}", field.name);
            if text.len() > TEXT_MAX {
                break;
            }
        }
        text
    }

    fn by_field(&self, field: &NamedField<'_>, raw: &[u8]) -> Option<String> {
        let is_long = field.type_name.contains("long");
        Some(match field.value(raw, self.endian)? {
            TraceValue::Signed(number) if is_long && field.field.size == 4 => format!("{:#x}", number as u32),
            TraceValue::Signed(number) if field.field.size == 2 => format!("{number:2}"),
            TraceValue::Unsigned(number) if is_long => format!("{number:#x}"),
            TraceValue::Text(bytes) | TraceValue::Bytes(bytes) => {
                let (text, rest) = bytes.split_at(until_nul(bytes).len());
                let is_readable =
                    text.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
                // As text, bytes after the first NUL would be lost.
                let is_text = field.is_text || !text.is_empty() && rest.iter().all(|byte| *byte == 0);
                let letters = ["char", "u8", "s8"].into_iter().any(|word| field.type_name.contains(word));
                match letters && is_text && is_readable {
                    true => readable(text),
                    false => format!("ARRAY[{}]", notation::dump(bytes, ", ")),
                }
            }
            number => value_text(number),
        })
    }

    /// The names and values of this tracepoint's own fields, up to the end of the raw data; several numbers
    /// as a list. Ends when the values exceed 64 KiB.
    pub fn values<'r>(&'r self, raw: &'r [u8]) -> impl Iterator<Item = (&'t str, String)> + use<'r, 't> {
        let own = self.fields.iter().filter(|field| !field.is_common());
        let mut bytes = 0;
        let values = own.filter_map(|field| Some((field.name, self.value(field, raw)?)));
        values.take_while(move |(_, value)| {
            let before = bytes;
            bytes += value.len();
            before <= TEXT_MAX
        })
    }

    fn value(&self, field: &NamedField<'_>, raw: &[u8]) -> Option<String> {
        let value = field.value(raw, self.endian)?;
        if field.kind != TraceFieldKind::Numbers || field.number_size == field.field.size {
            return Some(value_text(value));
        }
        let mut numbers = (0..).map_while(|index| field.number(index, raw, self.endian)).peekable();
        if numbers.peek().is_none() {
            // Numbers of, say, 3 bytes.
            return Some(value_text(value));
        }
        let mut text = String::from("[");
        for number in numbers.take(TEXT_MAX / 2) {
            text += if text.len() > 1 { ", " } else { "" };
            match number {
                TraceValue::Unsigned(number) => text += itoa::Buffer::new().format(number),
                number => text += &value_text(number),
            }
        }
        text.push(']');
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &str = "name: made\nID: 1\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:int pid;\toffset:16;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] text;\toffset:20;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long args[2];\toffset:24;\tsize:16;\tsigned:0;\n\
        \tfield:void * ptr;\toffset:40;\tsize:8;\tsigned:0;\n\n\
        print fmt: ";

    /// Raw data with comm `sh`, pid -2, text `hi`, args 5 and 0x10, ptr 0.
    fn raw() -> Vec<u8> {
        let mut raw = vec![0; 51];
        raw[8..10].copy_from_slice(b"sh");
        raw[16..20].copy_from_slice(&(-2i32).to_le_bytes());
        raw[20..24].copy_from_slice(&(3u32 << 16 | 48).to_le_bytes());
        raw[24] = 5;
        raw[32] = 0x10;
        raw[48..50].copy_from_slice(b"hi");
        raw
    }

    fn printer<'t>(format: &TraceFormat<'t>) -> TracePrinter<'t> {
        let texts = HashMap::from([(0x10, "a text".to_owned())]);
        TracePrinter::new(format, Endian::Little, &Arc::new(Kernel { texts, ..Kernel::default() }))
    }

    fn function(address: u64) -> Option<(String, u64)> {
        (address == 0x10).then(|| ("begin".to_owned(), 4))
    }

    fn shown(print_fmt: &str) -> Result<String, String> {
        let text = format!("{FIELDS}{print_fmt}\n");
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = printer(&format);
        let shown = printer.text(&raw(), &mut function);
        match printer.why_by_field() {
            Some(why) => Err(format!("{why}; {shown}")),
            None => Ok(shown),
        }
    }

    #[test]
    fn no_text_of_a_format_reaches_a_terminal_unescaped() {
        for (format, text) in [
            ("\"a\\\u{1b}[31m%s\", REC->comm", "a\\u{1b}[31msh"),
            (r#""a\rb%s", REC->comm"#, "a\\rbsh"),
            ("\"a\u{202e}b%s\", REC->comm", "a\\u{202e}bsh"),
            ("\"%s\", __print_symbolic(REC->pid, { -2, \"x\\\u{7}\" })", "x\\u{7}"),
        ] {
            assert_eq!(shown(format).as_deref(), Ok(text), "{format}");
        }
    }

    #[test]
    fn widths_and_texts_that_are_cut_off_are_limited() {
        let wide = shown(r#""%*pI4|%*s", 0x7fffffff, REC->args, 0x7fffffff, REC->comm"#).unwrap();
        assert!(wide.len() < 1000, "{} bytes", wide.len());
        let cut = format!(r#""{}"{}"#, "%.0s".repeat(999), ", REC->comm".repeat(999));
        assert_eq!(shown(&cut).as_deref(), Ok(""));
        let long = format!("__print_symbolic(REC->pid, {{ -2, \"{}\" }})", "x".repeat(9999));
        let cut = format!(r#""{}"{}"#, "%.0s".repeat(30), format!(", {long}").repeat(30));
        assert!(shown(&cut).is_err() || shown(&cut).unwrap().starts_with("[FAILED"));
    }

    #[test]
    fn expressions_of_c_are_evaluated() {
        for (format, text) in [
            (r#""%s %d", REC->comm, REC->pid"#, "sh -2"),
            (r#""%s|%5s|%-5s|%.1s|", __get_str(text), REC->comm, REC->comm, REC->comm"#, "hi|   sh|sh   |s|"),
            (r#""%u %x %ld", REC->pid, REC->pid, REC->pid"#, "4294967294 fffffffe -2"),
            (r#""%08lx %#lx %lu%%", REC->args[1], REC->args[1], REC->args[0] * 2 + 1"#, "00000010 0x10 11%"),
            (r#""%p %p", REC->ptr, (void *)REC->args[1]"#, "(nil) 0x10"),
            (r#""%s", REC->args[0] & 4 ? "yes" : "no""#, "yes"),
            (
                r#""%s", __print_flags(REC->args[0], "|", { 1, "A" }, { (1 << 1), "B" }, { 0x4UL, "C" })"#,
                "A|C",
            ),
            (r#""%s", __print_flags(REC->args[1], "|", { 1, "A" })"#, "0x10"),
            (
                r#""%s %s", __print_symbolic(REC->args[0], { 5, "FIVE" }), __print_symbolic(REC->pid, { 5, "FIVE" })"#,
                "FIVE 0xfffffffe",
            ),
            (r#""%d %d", (u8)REC->pid, (int)REC->pid < 0"#, "254 1"),
            (r#""a" "b\n""#, "ab\n"),
            (r#""%d", 1 + 2 * 3 == 7 && !0 || 0"#, "1"),
            (r#""%d", 10 - 3 - 2"#, "5"),
            (r#""%x", REC->args[0] & (1 | 2)"#, "1"),
            (r#""%s", REC->pid < 0 ? "below" : "above""#, "below"),
            (r#""%s", REC->pid == 1 ? "one" : REC->pid == -2 ? "minus two" : "other""#, "minus two"),
            (r#""%d", (REC)->pid"#, "-2"),
            (r#""%s", __print_flags(REC->args[0], "|", { 0, "NONE" }, { 1, "A" })"#, "A|0x4"),
            (r#""%s", __print_flags(REC->args[0] & 8, "|", { 0, "NONE" }, { 1, "A" })"#, ""),
            (
                r#""%s", __print_symbolic(REC->pid, { 5, "FIVE" }, { -2, "MINUS" "_TWO" }, { -1, 0 })"#,
                "MINUS_TWO",
            ),
            (r#""%s", REC->pid ? __print_symbolic(REC->args[0], { 1 << 2 | 1, "FIVE" }) : "none""#, "FIVE"),
            (r#""%s", __print_symbolic(REC->args[0] - 3, { 1 << TIMER_SOFTIRQ, "TIMER" })"#, "TIMER"),
            (
                r#""%s", __print_symbolic(REC->args[0] - 3, { TIMER_SOFTIRQ, "TIMER" }, { NET_TX_SOFTIRQ, "NET" })"#,
                "NET",
            ),
            (r#""%d %d %d", sizeof(unsigned long), sizeof(u16), sizeof(REC->comm)"#, "8 2 8"),
            (r#""%d", __builtin_expect(!!(REC->pid), 1)"#, "1"),
            (
                r#""%ps %pS %pf %pF", REC->args[1], (void *)REC->args[1], REC->args[1], REC->args[1]"#,
                "begin begin+0x4 begin begin+0x4",
            ),
            (r#""%ps", REC->args[0]"#, "0x5"),
            (r#""%*d|%-*d|%.*s|%0*x", 4, 1, 4, 2, 1, REC->comm, 3, 10"#, "   1|2   |s|00a"),
            (r#""%s %s", __print_hex(REC->comm, 2), __print_hex_str(__get_str(text), 2)"#, "73 68 6869"),
            (r#""%s", __print_array(REC->args, 2, sizeof(REC->ptr))"#, "{0x5,0x10}"),
            (
                r#""%s", __print_array(__get_dynamic_array(text), __get_dynamic_array_len(text), 1)"#,
                "{0x68,0x69,0x0}",
            ),
            (r#""%s %s", __get_bitmask(text), __get_cpumask(text)"#, "006968 3,5-6,8,11,13-14"),
            (
                r#""%*ph %*phC %*phD %*phN", 2, __get_dynamic_array(text), 9, REC->comm, 2, REC->comm, 2, REC->comm"#,
                "68 69 73:68:00:00:00:00:00:00 73-68 7368",
            ),
            (r#""%*pb %*pbl", 8, REC->args, 64, REC->args"#, "00000000,00000005 0,2"),
            (
                r#""%s|%s", (char *)__get_dynamic_array(text), REC->pid ? __get_str(text) : ((void *)0)"#,
                "hi|hi",
            ),
            (r#""%c%x", __get_str(text)[1], ((u16 *)__get_dynamic_array(text))[0]"#, "i6968"),
            (r#""%c%+d% d%03d", 'x', 1, 2, 3"#, "x+1 2003"),
        ] {
            assert_eq!(shown(format).as_deref(), Ok(text), "{format}");
        }
    }

    #[test]
    fn addresses_and_ids_are_shown_as_by_the_kernels_printf() {
        let lines = [("ip", 4), ("ip6", 16), ("mac", 6)].map(|(name, size)| {
            format!("\tfield:__u8 {name}[{size}];\toffset:8;\tsize:{size};\tsigned:0;\n")
        });
        let shown = |format: &str, bytes: &[u8]| {
            let text = format!("name: made\nID: 1\nformat:\n{}\nprint fmt: {format}\n", lines.concat());
            let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
            let printer = printer(&format);
            let raw = [&[0; 8], bytes].concat();
            match printer.why_by_field() {
                Some(why) => why.to_owned(),
                None => printer.text(&raw, &mut function),
            }
        };
        let bytes: Vec<u8> = (0..16).map(|byte| byte * 17).collect();
        for (format, text) in [
            (r#""%pI4|%pi4", REC->ip, REC->ip"#, "0.17.34.51|000.017.034.051"),
            // Regression: the letter was text.
            (
                r#""%pI4h|%pI4l|%pI4n|%pI4b|%pi4h", REC->ip, REC->ip, REC->ip, REC->ip, REC->ip"#,
                "51.34.17.0|51.34.17.0|0.17.34.51|0.17.34.51|051.034.017.000",
            ),
            (r#""%pmR", REC->mac"#, "554433221100"),
            (r#""%pI6", REC->ip6"#, "0011:2233:4455:6677:8899:aabb:ccdd:eeff"),
            (r#""%pi6", REC->ip6"#, "00112233445566778899aabbccddeeff"),
            (r#""%pI6c", REC->ip6"#, "11:2233:4455:6677:8899:aabb:ccdd:eeff"),
            (r#""%pM %pm", REC->mac, REC->mac"#, "00:11:22:33:44:55 001122334455"),
            (r#""%pMF %pMR", REC->mac, REC->mac"#, "00-11-22-33-44-55 55:44:33:22:11:00"),
            (
                r#""%pU %pUb", REC->ip6, REC->ip6"#,
                "00112233-4455-6677-8899-aabbccddeeff 00112233-4455-6677-8899-aabbccddeeff",
            ),
            (r#""%pUL", REC->ip6"#, "33221100-5544-7766-8899-AABBCCDDEEFF"),
            // Fields of the wrong size.
            (
                r#""%pM", REC->ip"#,
                "[FAILED TO PARSE] ip=ARRAY[00, 11, 22, 33] \
                 ip6=ARRAY[00, 11, 22, 33, 44, 55, 66, 77, 88, 99, aa, bb, cc, dd, ee, ff] \
                 mac=ARRAY[00, 11, 22, 33, 44, 55]",
            ),
            (r#""%pGg", REC->ip6"#, "`%pGg` is not known"),
        ] {
            assert_eq!(shown(format, &bytes), text, "{format}");
        }
        let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1]].concat();
        let short = |bytes: &[u8]| shown(r#""%pI6c", REC->ip6"#, bytes);
        assert_eq!([short(&mapped), short(&[0; 16])], ["::ffff:127.0.0.1", "::"]);
    }

    #[test]
    fn bytes_that_begin_with_0_are_shown() {
        let text = "name: made\nID: 1\nformat:\n\tfield:__u8 ip[4];\toffset:8;\tsize:4;\tsigned:0;\n";
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = printer(&format);
        // perf shows the first as an empty text.
        let shown =
            [[0, 0, 0, 1], [77, 0, 0, 0]].map(|ip| printer.text(&[&[0; 8][..], &ip].concat(), &mut function));
        assert_eq!(shown, ["[FAILED TO PARSE] ip=ARRAY[00, 00, 00, 01]", "[FAILED TO PARSE] ip=M"]);
    }

    #[test]
    fn unprintable_samples_are_shown_field_by_field() {
        let fields = "[FAILED TO PARSE] comm=sh pid=-2 text=hi \
            args=ARRAY[05, 00, 00, 00, 00, 00, 00, 00, 10, 00, 00, 00, 00, 00, 00, 00] ptr=0x0";
        let deep = format!("\"%d\", {}1{}", "(".repeat(1000), ")".repeat(1000));
        let long = format!("\"%d\", 1{}", "+1".repeat(5000));
        let endless = format!("\"{}\"", "x".repeat(1 << 20));
        for (format, why) in [
            (r#""%s", REC->pid"#, "no text is given for `%s`"),
            (r#""%d", REC->comm"#, "no number is given for `%d`"),
            (r#""%pM", REC->pid"#, "no array is given for `%pM`"),
            (r#""%s", jiffies_to_msecs(REC->pid)"#, "`jiffies_to_msecs` is a function of the kernel"),
            (r#""%s", __print_flags(REC->pid, "|", { })"#, "is not understood"),
            (r#""%s", __print_hex(REC->pid, 1)"#, "an array is missing"),
            (r#""%d", sizeof(struct page)"#, "a size is not recorded"),
            (r#""%d", REC->args[REC->comm]"#, "no number is given for `%d`"),
            ("\"a\tb\"", "a string has a control character"),
            (r#""%s", REC->other"#, "there is no field `other`"),
            (r#""%d""#, "it has too few values"),
            (r#""%99999999999999999999d", 1"#, "is not known"),
            (r#""%"#, "is not terminated"),
            ("", "is not understood"),
            (&deep, "nested too deeply"),
            (&long, "too many operators"),
            (&endless, "too long"),
        ] {
            let error = shown(format).unwrap_err();
            assert!(error.contains(why) && error.ends_with(fields), "{error}");
        }
        // A division by 0, or an index out of range.
        for format in [r#""%d", 1 / 0"#, r#""%d", REC->args[2]"#, r#""%d", 1 << 64"#] {
            assert_eq!(shown(format).as_deref(), Ok(fields), "{format}");
        }
    }

    #[test]
    fn texts_at_addresses_are_those_of_the_recording() {
        let head = [
            &b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0header_page\0"[..],
            &[0; 8],
            b"header_event\0",
            &[0; 8],
        ];
        let texts = b"0x10 : \"a: text\\n\"\n0x20 : \"\"\nnoise\n";
        let section = [&head.concat(), &[0; 12][..], &[texts.len() as u8, 0, 0, 0], texts, &[0; 8]].concat();
        let kernel = Kernel::new(&TracingData::read(&section).unwrap());
        assert_eq!(kernel.long, 8);
        assert_eq!(kernel.texts, HashMap::from([(0x10, "a: text".to_owned()), (0x20, String::new())]));
        let text = format!("{FIELDS}\"%s\", REC->ptr\n");
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = TracePrinter::new(&format, Endian::Little, &Arc::new(kernel));
        let shown = [0x10, 0x1234].map(|address| {
            let mut raw = raw();
            (raw[40], raw[41]) = (address as u8, (address >> 8) as u8);
            printer.text(&raw, &mut function)
        });
        assert_eq!(shown, ["a: text", "1234"]);
    }

    #[test]
    fn variables_of_the_kernel_count_as_0_and_its_constants_name_nothing() {
        let text = format!(
            "{FIELDS}\"%p %s\", (struct page *)vmemmap_base + REC->args[0], \
             __print_symbolic(REC->args[0], {{ 1 << UNKNOWN, \"ONE\" }}, {{ 5, \"FIVE\" }})\n"
        );
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = printer(&format);
        assert_eq!(printer.text(&raw(), &mut function), "0x5 FIVE");
        assert_eq!(printer.unknown_names(), ["vmemmap_base", "UNKNOWN"]);
    }

    #[test]
    fn short_raw_data_is_shown_up_to_its_end() {
        let text = format!("{FIELDS}\"%s %d\", REC->comm, REC->pid\n");
        let format = TraceFormat { system: b"s", name: b"made", id: Some(1), text: text.as_bytes() };
        let printer = printer(&format);
        assert_eq!(printer.text(&raw()[..18], &mut function), "[FAILED TO PARSE] comm=sh");
        assert_eq!(printer.text(&[], &mut function), "[FAILED TO PARSE]");
    }
}
