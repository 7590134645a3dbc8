// Files that grow while a program runs, by pieces that are there as a whole or not at all.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "spi.h"

namespace postern::internal::formats {

/// A file that one process at a time appends to, while this lives. Errors are in the name of `who`:
/// failed_precondition when another process (or another of these) has the file, invalid_argument
/// for what is no regular file, unavailable with the system's reason.
class AppendFile {
 public:
  enum class Open { continued, stream, fresh };
  /// Opens it. `continued`: behind what is there, if anything is; `stream`: likewise, and what is
  /// no regular file (a pipe, a terminal) is written as it comes, where opening a pipe waits for
  /// its reader; `fresh`: throws Error(already_exists) when anything is, and what nothing was
  /// written to goes again. Makes the folders in which the file lies. `cure`: what errors of
  /// writing add.
  POSTERN_API AppendFile(const char* who, std::filesystem::path file, Open open,
                         const char* cure = ", or have the program go on without (OnError::go_on)");
  POSTERN_API ~AppendFile();
  AppendFile(const AppendFile&) = delete;

  /// Appends all of it, or with an error none.
  POSTERN_API void append(std::string_view piece);
  /// Takes away what is behind so many bytes.
  POSTERN_API void cut_to(std::size_t size);
  /// Takes what follows the last newline away; how many bytes.
  POSTERN_API std::size_t cut_half_line();
  /// Returns whether somebody has removed it: what is written goes nowhere.
  POSTERN_API bool is_gone() const;
  bool is_empty() const { return size_ == 0; }
  /// Returns its first line, without the newline; empty when it has none.
  POSTERN_API std::string first_line() const;

  /// Returns whether another holder has this file open for appending.
  POSTERN_API static bool is_held(const std::filesystem::path& file);

 private:
  [[noreturn]] void fail(int reason) const;

  const char *who_, *cure_;
  std::filesystem::path file_;
  int handle_ = -1;
  bool fresh_, regular_ = false;
  std::size_t size_ = 0;
  std::optional<host::ClosedInChild> locked_;
};

}  // namespace postern::internal::formats
