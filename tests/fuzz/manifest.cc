// For libFuzzer: the input is a manifest behind the checksum that it must have, of a checkpoint
// with one good file of tensors and one state. It is refused, or what it says is there.
// scripts/fuzz builds and runs it.
#include <postern/checkpoint.h>
#include <unistd.h>

#include <fstream>

#include "core/digest.h"

namespace {

namespace fs = std::filesystem;

/// A folder with a checkpoint that lacks its manifest alone.
class Folder {
 public:
  Folder() {
    fs::create_directories(checkpoint());
    constexpr std::string_view head = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
    static_assert(head.size() < 64);
    std::string part(8, '\0');
    part[0] = 64;
    part += std::string(head) + std::string(64 - head.size(), ' ') + "twelve bytes";
    std::ofstream(checkpoint() / "part-0.safetensors", std::ios::binary) << part;
    std::ofstream(checkpoint() / "state-0") << "7";
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path checkpoint() const { return path_ / "checkpoint-000000000001"; }
  const fs::path& path() const { return path_; }

 private:
  const fs::path path_ = fs::temp_directory_path() / ("postern_fuzz_" + std::to_string(::getpid()));
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const Folder folder;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  std::ofstream(folder.checkpoint() / "manifest", std::ios::binary)
      << "postern checkpoint 1\n"
      << postern::internal::digest(body) << "\n"
      << body;
  try {
    const auto found = postern::detail::newest_checkpoint(folder.path());
    if (found) static_cast<void>(postern::detail::names_in(*found));
  } catch (const postern::Error&) {
  }
  return 0;
}
