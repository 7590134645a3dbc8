// The programs that jit has compiled in this process, for who watches.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/program.h"

namespace postern::internal {

struct KnownProgram {
  std::uint64_t number;  // counted from 1
  std::string name;
  std::weak_ptr<const Program> program;
};

/// How many are known: the newest.
inline constexpr std::size_t most_programs = 256;

void add_known_program(const std::string& name, const std::shared_ptr<const Program>& program);
std::vector<KnownProgram> known_programs();

}  // namespace postern::internal
