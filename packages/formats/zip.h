// ZIP archives, written and read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spi.h"

namespace postern::internal::formats {

/// A file for an archive: its bytes are the head's and the data's.
struct ZipFile {
  std::string name;
  std::string head;
  std::span<const std::byte> data;
};
/// The largest numbers for which an archive has short fields; all others are as ZIP64 has them.
struct ZipShort {
  std::uint64_t bytes = 0xFFFFFFFE, files = 0xFFFE;
};
/// Writes an archive of these, stored as they are. Names have at most 65535 bytes. Throws what
/// writing to `to` does.
POSTERN_API void write_zip(host::NewFile& to, const std::vector<ZipFile>& files,
                           const ZipShort& fits = {});

/// Calls `with` for each file of the archive, in the order of its directory: files that are stored
/// or deflated, also with 64-bit sizes. Nothing in the archive is believed: it takes no more memory
/// than deflate can make of its bytes. Throws Error(invalid_argument) when it is no archive,
/// Error(data_loss) when it is damaged, Error(unimplemented) for other methods and encryption.
void read_zip(std::string_view archive,
              const std::function<void(const std::string& name, std::string_view data)>& with);

}  // namespace postern::internal::formats
