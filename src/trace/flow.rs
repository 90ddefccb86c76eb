//! The walk through the code, from block to block, as the packets of any tracer lead it.
