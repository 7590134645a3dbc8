// The FFI targets of Postern's programs.
#pragma once
#include <cstdint>

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace postern::internal::host {

inline constexpr const char* call_target = "postern_call";
/// The same, of calls (Memory::device_recorded) whose work XLA may record in a command buffer.
inline constexpr const char* recorded_target = "postern_recorded_call";
inline constexpr const char* site_attribute = "id";
/// Of a call with one more result, pred[]: whether the run goes on.
inline constexpr const char* tells_attribute = "tells";

/// So many plug-ins of a process may call back. Each has handlers of its own, which know its types.
inline constexpr int most_plugins = 4;
/// By plug-in: the id under which a run's ExecuteContext holds its RunState; set once when the
/// plug-in is loaded.
extern std::int64_t run_state_types[most_plugins];

/// The handlers of one plug-in.
struct Targets {
  XLA_FFI_Error* (*call)(XLA_FFI_CallFrame*);
  XLA_FFI_Error* (*ask)(XLA_FFI_CallFrame*);
};
Targets targets_of(int plugin);

/// Gives pred[]: whether nothing has stopped the run. For loops of programs on several devices,
/// which no error ends. The name stands in saved programs.
inline constexpr const char* ask_target = "postern_goes_on";

}  // namespace postern::internal::host
