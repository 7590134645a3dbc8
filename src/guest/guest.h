// Host functions for programs that are not ours: custom calls of another XLA in this process, such
// as JAX's.
#pragma once
#include <cstdint>
#include <exception>

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace postern::guest {

/// The handler of custom calls with api_version 4. Each is a run of one site of its own, and what
/// holds for sites holds for it: types are checked, functions have time limits, asynchronous taps
/// go through the queue. Attributes, in any order; others are refused:
///
///   function  string: of register_function
///   name      string: of the site, in errors and what functions are told
///   file, line  string, i64: in the user's source
///   kind      string: "call"; "tap", whose results are none; or "async", a tap that is not waited
///   for timeout   i64: nanoseconds; 0: none every     i64: firings 0, every, 2 * every, ... of the
///   place reach a tap's function
///
/// A failure is kept, and its number stands in the text of XLA's error: "[postern failure 7]".
XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame);

/// The failure of that number; null when it is too long ago: the last 256 are kept.
std::exception_ptr failure(std::uint64_t number);

}  // namespace postern::guest
