// Recordings: what the host functions of runs saw and gave, kept so that the runs can be repeated
// without them.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace postern {

namespace internal::recordings {
class Recording;
}

/// While it lives, runs that this thread starts are recorded or replayed, in the order in which
/// they start; not those that host functions start. Recordings do not nest.
class Taping {
 public:
  POSTERN_API Taping(std::shared_ptr<internal::recordings::Recording> recording,
                     std::filesystem::path file);
  /// Ends it. A recording that was not closed is written; why that fails is then a line in the log.
  POSTERN_API ~Taping();
  POSTERN_API Taping(Taping&& other) noexcept;
  Taping& operator=(Taping&&) = delete;

  /// Ends it, and writes a recording to its file: what runs that are still under way do is not in
  /// it. Throws Error(unavailable) when the file cannot be written.
  POSTERN_API void close();

  const std::shared_ptr<internal::recordings::Recording>& internal() const { return recording_; }

 private:
  std::shared_ptr<internal::recordings::Recording> recording_;
  std::filesystem::path file_;
};

struct RecordingOptions {
  /// For resume(). Each call is in the file when it returns, and so also when the process is killed
  /// then; taps are left out, and the states of register_state() that a call has changed go along.
  /// What an earlier process has left in the file is there for resume(), and replaced when a run
  /// begins without that. One process at a time writes to it.
  bool resumable = false;
};

/// Records each call's operands, as a digest, and its results or failure, and each tap's values.
/// Throws Error: failed_precondition when this thread records or replays already, or another
/// process writes to the file of a resumable one, unavailable when that cannot be written to.
///
///   auto f = pn::jit([](pn::Tensor x) {
///     return pn::call(pn::type<float>(), [](float v) { return v + 1; }, x);
///   });
///   pn::Taping recording = pn::record("run.rec");
///   const pn::Tensor y = f(1.0f);  // 2
///   recording.close();
///   const pn::Taping replaying = pn::replay("run.rec");
///   const pn::Tensor again = f(1.0f);  // 2
[[nodiscard]] POSTERN_API Taping record(const std::filesystem::path& file,
                                        const RecordingOptions& options = {});

/// Replays: host functions are not entered, and need not be there; calls give what was recorded, to
/// the byte. A run that is of another program, or one more than was recorded, is an
/// Error(failed_precondition); a call whose operands differ from the recorded ones, or that was not
/// made, is a CallbackError of that code, which names it. Throws Error for a file that is missing
/// (not_found), damaged (data_loss), or no recording (invalid_argument), and where this thread
/// records or replays already (failed_precondition).
[[nodiscard]] POSTERN_API Taping replay(const std::filesystem::path& file);

/// One firing of a recording.
struct RecordedFiring {
  std::uint64_t run = 0;   // counted from 0
  std::int64_t site = 0;   // of the program, in order
  std::string kind, name;  // "call", "tap", "hook", "print", and the site's name
  int device = 0;
  std::int64_t element = -1;        // of the batch, where vmap fires for each
  std::string operands;             // their digest
  std::vector<Type> types;          // of a call's results, of a tap's values
  std::vector<std::string> values;  // their bytes, row-major; none when it failed or ended the run
  std::string failure;              // what a call that failed said
  bool ended = false;               // the run ended there; `failure`: by another function
};
/// Returns them in the order in which they came. Throws Error for the file as `replay` does.
POSTERN_API std::vector<RecordedFiring> read_recording(const std::filesystem::path& file);

}  // namespace postern
