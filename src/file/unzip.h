// ZIP archives, read from memory.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace postern::internal::file {

/// Calls `with` for each file of the archive, in the order of its directory: files that are stored
/// or deflated, also with 64-bit sizes. Nothing in the archive is believed: it takes no more memory
/// than deflate can make of its bytes. Throws Error(invalid_argument) when it is no archive,
/// Error(data_loss) when it is damaged, Error(unimplemented) for other methods and encryption.
void unzip(std::string_view archive,
           const std::function<void(const std::string& name, std::string_view data)>& with);

}  // namespace postern::internal::file
