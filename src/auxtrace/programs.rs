//! The code of the BPF programs of a recording, by address.

use std::collections::HashMap;

use perfx_format::features::bpf_functions;
use perfx_format::header::Features;
use perfx_format::{Endian, Feature, hex};

#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By address.
    functions: HashMap<u64, Vec<Function>>,
}

#[derive(Debug)]
struct Function {
    name: Vec<u8>,
    code: Vec<u8>,
}

impl Programs {
    pub(crate) fn of(features: &Features, endian: Endian) -> Programs {
        let mut programs = Programs::default();
        let section = features.get(&Feature::BPF_PROG_INFO);
        for function in section.into_iter().flat_map(|section| bpf_functions(section, endian)) {
            if let (Some(tag), Some(code)) = (function.tag, function.code) {
                let name = format!("bpf_prog_{}", hex(tag)).into_bytes();
                programs
                    .functions
                    .entry(function.address)
                    .or_default()
                    .push(Function { name, code: code.to_vec() });
            }
        }
        programs
    }

    pub(crate) fn code(&self, address: u64, name: &[u8]) -> Option<&[u8]> {
        let functions = self.functions.get(&address)?;
        let function = functions.iter().find(|function| name.starts_with(&function.name))?;
        Some(&function.code)
    }
}
