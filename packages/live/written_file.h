// Files that listeners of switches write: one listener a file, and who lets one go can wait for it.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "spi.h"

namespace postern::internal::live {

/// How writing a file went, for who asks when its listener has gone.
class FileEnd {
 public:
  /// Keeps the first reason why it could not be written; whether this was that.
  bool fail(std::string_view why);
  /// Returns that reason, empty for none.
  std::string failure() const;

 private:
  mutable Mutex guard_;
  std::string failure_;
};

/// Is there until the listener's function has gone, which finishes the file.
struct WrittenFile {
  const std::string path;
  const std::shared_ptr<FileEnd> end = std::make_shared<FileEnd>();
  std::atomic<bool> let_go{false};  // from then on barrier() and the end of the process wait
};

/// Throws Error(already_exists) while another listener of this process writes to it.
std::shared_ptr<WrittenFile> written_file(const std::string& path);

}  // namespace postern::internal::live
