// The list of files that are being written.
#include "written_file.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace postern::internal::live {

namespace {

class WrittenFiles : public host::Background {
 public:
  /// Never destroyed: listeners may go after main.
  static WrittenFiles& all() {
    static const auto* const files = [] {
      auto* const made = new std::shared_ptr<WrittenFiles>(std::make_shared<WrittenFiles>());
      host::wait_also_for(*made);
      return made;
    }();
    return **files;
  }

  std::shared_ptr<WrittenFile> begin(const std::string& path) {
    std::scoped_lock lock(guard_);
    std::erase_if(files_, [](const auto& file) { return file.expired(); });
    for (const auto& file : files_)
      if (const auto other = file.lock(); other && other->path == path)
        throw Error(ErrorCode::already_exists,
                    fmt::format("another listener writes to '{}'; give each a file of its own",
                                one_line(path)));
    const std::shared_ptr<WrittenFile> made(new WrittenFile{path});
    files_.push_back(made);
    return made;
  }

  bool settle(std::optional<std::chrono::steady_clock::time_point> until) override {
    while (is_finishing()) {
      if (until && std::chrono::steady_clock::now() >= *until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  bool is_finishing() {
    std::scoped_lock lock(guard_);
    return std::ranges::any_of(files_, [](const auto& weak) {
      const auto file = weak.lock();
      return file && file->let_go;
    });
  }

  Mutex guard_;
  std::vector<std::weak_ptr<WrittenFile>> files_;
};

}  // namespace

bool FileEnd::fail(std::string_view why) {
  std::scoped_lock lock(guard_);
  if (!failure_.empty()) return false;
  failure_ = why;
  return true;
}

std::string FileEnd::failure() const {
  std::scoped_lock lock(guard_);
  return failure_;
}

std::shared_ptr<WrittenFile> written_file(const std::string& path) {
  return WrittenFiles::all().begin(path);
}

}  // namespace postern::internal::live
