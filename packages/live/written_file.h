// Files that listeners of switches write: one listener a file, and who lets one go can wait for it.
#pragma once
#include <atomic>
#include <memory>
#include <string>

namespace postern::internal::live {

/// Is there until the listener's function has gone, which finishes the file.
struct WrittenFile {
  const std::string path;
  std::atomic<bool> let_go{false};  // from then on barrier() and the end of the process wait
};

/// Throws Error(already_exists) while another listener of this process writes to it.
std::shared_ptr<WrittenFile> written_file(const std::string& path);

}  // namespace postern::internal::live
