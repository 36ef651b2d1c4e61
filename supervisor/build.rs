//! Nothing yet: the cell is built and embedded here.
fn main() {}
