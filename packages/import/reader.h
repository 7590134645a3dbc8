// Programs from elsewhere: who serves their custom calls, and their types.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spi.h"

namespace postern::internal::imported {

/// Reads a module as the library's `Reader::read` says.
Imported read_any(std::string_view text, const std::string& name, const std::string& entry);

/// Who serves a target. FFI handlers are noted, as XLA must know them. Those of XLA's own that say
/// where parts of values lie give what they are given: there is one device.
enum class Server { host, handler, xla, nobody };
/// Throws Error for what only XLA itself may write: it trusts their operands.
Server server_of(const std::string& target);
/// Throws Error unless operands and results are what XLA, or nobody, must find there: it dies of
/// others.
void require_signature(const std::string& target, Server server,
                       std::span<const std::string> operands, std::span<const std::string> results);

/// Says why such a call is refused.
std::string brings_computations(std::string_view target);

/// Reads tensor<2xf32> and the like. Throws Error.
Type mlir_type(std::string_view text);
/// Does so too where extents are open, "?": they are -1.
Type open_type(std::string_view text);

}  // namespace postern::internal::imported
