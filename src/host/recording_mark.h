// Where a run is in a recording that another process can take up.
#pragma once
#include <postern/record.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace postern::internal::host {

/// Where a run is in a recording for resume(): how often each of its sites has been called.
struct RecordingMark {
  struct Site {
    std::int64_t site;
    int device;
    std::int64_t element;
    std::uint64_t calls;
  };
  std::string recording;  // its name for itself
  std::uint64_t run = 0;
  std::vector<Site> sites = {};
};

/// Returns the mark of the run that the calling thread works for, if it is recorded so.
POSTERN_API std::optional<RecordingMark> recording_mark();

/// Does as Journal::resume. Throws Error(failed_precondition) also for a recording that is none for
/// resume().
POSTERN_API void resume_recording(const Taping& recording, bool from_checkpoint,
                                  const std::optional<RecordingMark>& mark);

}  // namespace postern::internal::host
