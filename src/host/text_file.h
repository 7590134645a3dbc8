// Files as a whole.
#pragma once
#include <postern/detail/api.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace postern::internal::host {

/// Opens as ::open does, of regular files alone and with no wait: who opens a pipe would wait for
/// its other end, and who reads a device might never come to an end. Else Error(invalid_argument)
/// in the name of `who`. All files are opened by this function, which scripts/rooms checks, but for
/// streams that are written as they come (`open_stream`).
POSTERN_API int open_file(const char* who, const std::string& file, int how);
POSTERN_API int open_stream(const std::string& file, int how);

/// Closes a handle in processes that are forked off while this lives: a lock on the file would stay
/// theirs when this process has ended. There the handle is -1.
class ClosedInChild {
 public:
  POSTERN_API explicit ClosedInChild(int& handle);
  POSTERN_API ~ClosedInChild();
  ClosedInChild(const ClosedInChild&) = delete;
  /// Unlocks and closes it in this process. No child that is forked off meanwhile keeps it.
  POSTERN_API void close();

 private:
  int& handle_;
};

/// Reads what `file` holds. Throws Error in the name of `who`: not_found or unavailable with the
/// system's reason, invalid_argument for what is no regular file, resource_exhausted where it is
/// too long.
POSTERN_API std::string read_file(const char* who, const std::string& file);

/// Reads it likewise; empty where it cannot be read.
POSTERN_API std::string read_if_there(const std::string& file) noexcept;

/// Returns whether something is at the path, as far as can be seen.
POSTERN_API bool is_there(const std::filesystem::path& path) noexcept;

/// Returns one name for a folder, whether it is there yet or not, and wherever the process goes.
/// Throws Error(unavailable) where that cannot be told.
POSTERN_API std::filesystem::path settled(const std::filesystem::path& folder);

/// A file that is written beside and takes its place in finish(), when all of it is on disk. Until
/// then, and if anything fails, what was there before is untouched. What is no regular file (a
/// pipe, a terminal) is written as it comes. Throws Error(unavailable) in the name of `who`, with
/// the system's reason.
class NewFile {
 public:
  POSTERN_API NewFile(const char* who, std::string file);
  POSTERN_API ~NewFile();
  NewFile(const NewFile&) = delete;

  POSTERN_API void write(std::string_view text);
  POSTERN_API void write_at(std::size_t offset, std::string_view text);
  /// Writes whole blocks past the kernel's cache where the file system and their place in memory
  /// and in the file allow; it saves a copy, and the time that the cache takes for long files.
  POSTERN_API void write_past_cache(std::string_view bytes);
  static constexpr std::size_t block = 4096;
  /// Has the disk begin with what has been written, and does not wait.
  POSTERN_API void begin_sync();
  /// Takes the place; what is written from then on is there at once.
  POSTERN_API void settle();
  POSTERN_API void finish();

 private:
  [[noreturn]] void fail(int reason) const;

  const char* who_;
  std::string asked_, file_, beside_;  // beside_: empty if written as it comes
  int handle_ = -1;
};

/// Makes `file` hold `text`, all of it or, with an Error, what it held before: see NewFile.
POSTERN_API void write_text_file(const char* who, const std::string& file, std::string_view text);

}  // namespace postern::internal::host
