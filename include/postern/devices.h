// Devices and configuration.
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace postern {

/// Settings of the process, given before the first operation runs. A field that is empty or zero
/// here keeps what the environment says (POSTERN_CPU_DEVICES, POSTERN_PLATFORM, POSTERN_PLUGIN,
/// POSTERN_CACHE_DIR, POSTERN_TF32) or the default; of a field that is not, zero has the meaning
/// said beside it.
struct Config {
  /// How many devices the CPU shows, each of them where several platforms are CPUs; default 1.
  int cpu_devices = 0;
  /// "cpu" (default) or "cuda"; "rocm", "oneapi", "tpu", "metal", "tt"; with a plug-in any other
  /// name. Where Postern does not know how programs call the host they run in stages.
  std::string platform = {};
  /// Path of a PJRT plug-in; default: the one for the platform, see docs/devices.md.
  std::string plugin = {};
  /// In place of both, all platforms that the process uses, the default one first: names, or
  /// "name=file" with a plug-in, whose devices then are of that name, as in {"cuda",
  /// "newer=/opt/xla/cpu_plugin.so"}. POSTERN_PLATFORM may be such a list too, with commas;
  /// POSTERN_PLUGIN is that of the first. `devices` numbers their devices on.
  std::vector<std::string> platforms = {};
  /// Where compiled programs are kept on disk; default: nowhere.
  std::string cache_dir = {};
  /// Levels of host functions that run programs; default 32.
  int max_reentry = 0;
  /// For each device, what asynchronous taps may hold before the program waits; default 256 MiB.
  std::size_t tap_queue_bytes = 0;
  /// In bytes: JitOptions::gather_limit where that is 0; default: none.
  std::size_t gather_limit = 0;
  /// How long the end of the process waits for runs in flight. 0: not at all. With those that are
  /// left the process leaves by _Exit, with its code: they go on until then, so statics stay.
  std::chrono::milliseconds exit_limit{5000};
  /// How long a thread that waits for another one (an answer of a bridge, a function with a time
  /// limit, the end of a run) looks for it before it sleeps, as long as such looks succeed: woken
  /// threads of virtual machines take up to 50 us to go on. 0: never, as where the process has one
  /// core.
  std::chrono::nanoseconds look{50'000};
  /// What the processes of a job speak to each other by: "mpi", or the path of such a library.
  /// Empty: POSTERN_CLUSTER, or a process is alone. See docs/processes.md.
  std::string cluster = {};
  /// After so long in a collective that another process does not come to, the log names it.
  std::chrono::milliseconds cluster_patience{10'000};
  /// Whether the plug-in itself is told of the cluster's processes: each is a node, and what their
  /// plug-ins must tell each other goes by the cluster. Programs do not use its collectives between
  /// them yet. CPU plug-ins know nothing of other processes, for them it is a TypeError.
  bool processes = false;
  /// Whether GPUs may round the operands of products and convolutions of f32 and c64 to TF32, whose
  /// mantissa has 10 bits, which is several times faster; also by POSTERN_TF32=1. Default: f32 is
  /// f32. Programs from elsewhere (load) have their own precision.
  bool tf32 = false;
};

/// Throws Error(failed_precondition) when the runtime is already in use, TypeError for values out
/// of range.
///
///   pn::configure({.cpu_devices = 4, .cache_dir = "compiled"});  // before anything else
POSTERN_API void configure(const Config& config, Place place = Place::current());

struct DeviceInfo {
  int ordinal;
  std::string kind;  // "cpu", "cuda": the platform
};
/// Returns the devices that programs can use; the first use makes them. Throws PluginError when
/// there is no plug-in that can be used, TypeError for a platform that there is not.
POSTERN_API std::vector<DeviceInfo> devices();
/// Returns those of one platform. Throws TypeError for one that the process does not use.
POSTERN_API std::vector<DeviceInfo> devices(const std::string& platform,
                                            Place place = Place::current());

/// A plug-in that programs of this process are compiled by and run in.
struct PluginInfo {
  std::string path;
  std::string platform;                   // "cpu", "cuda"; of others what Config::platform says
  int api_major, api_minor;               // the version of PJRT's interface
  bool calls_back;                        // false: programs with calls run in stages
  std::vector<std::string> extensions;    // of PJRT that it has: "FFI", "Layouts", ...
  std::vector<std::string> memory_kinds;  // of its first device: "device", "pinned_host", ...
};
/// Throws PluginError when there is none that can be used, TypeError for a platform that there is
/// not.
POSTERN_API PluginInfo plugin_info();
/// Returns that of one platform; without a name that of the default one. Throws TypeError for one
/// that the process does not use.
POSTERN_API PluginInfo plugin_info(const std::string& platform, Place place = Place::current());

/// What it costs to run programs on a platform, as seconds, or as so many a second.
struct Costs {
  double launch;     // of a program that does next to nothing, until its result is there
  double latency;    // of bringing a number from the host to a device
  double bandwidth;  // bytes a second on the way there
  double flops;      // operations a second, of a product of matrices of f32
  double bytes;      // read and written a second, by an operation on each element
};
/// Returns those of a device's platform, by which programs are cut into stages. They are measured
/// when something first asks, in some milliseconds and the time that four small programs take to
/// compile, and stay as they are for the process, whatever else the machine does meanwhile. With
/// POSTERN_COSTS="1e-5 1e-5 1e9 1e11 1e10" they are these, in that order, for all platforms, so
/// that programs are always cut alike. Throws TypeError for a device that there is not, and for a
/// POSTERN_COSTS that is not five positive numbers; what running programs throws.
POSTERN_API Costs costs(int device = 0, Place place = Place::current());
/// Returns "launch 2.1 us, transfer 0.7 us and 11 GB/s, ...". Throws nothing.
POSTERN_API std::string to_string(const Costs& costs);

/// Waits for everything that was started before it, on all devices and from all threads; then
/// throws the first failure that nobody has seen yet (CallbackError, with the others listed).
/// Inside a host function it does not wait for the run that is calling, which would be for ever,
/// but throws CallbackError with code reentry. With a limit returns the number of runs and firings
/// still pending when it passes, 0 when all is done.
POSTERN_API void barrier();
POSTERN_API std::size_t barrier(std::chrono::nanoseconds limit);

}  // namespace postern
