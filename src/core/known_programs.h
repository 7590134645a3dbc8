// The programs that jit has compiled in this process, for who watches.
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace postern::internal {

struct Program;

/// What there is to say of a program, also when it is gone.
struct KnownProgram {
  struct Site {
    const char* kind;
    std::string name;
    Place place;
  };
  std::uint64_t number;  // counted from 1
  std::string name;
  std::weak_ptr<const Program> program;
  std::size_t operations = 0;
  std::vector<Site> sites = {};  // those in its loops and branches included
};

/// How many are known: the newest.
inline constexpr std::size_t most_programs = 256;

void add_known_program(const std::string& name, const std::shared_ptr<const Program>& program);
/// Returns those after this number.
POSTERN_API std::vector<KnownProgram> known_programs(std::uint64_t after = 0);
/// Returns the numbers of those that are gone.
POSTERN_API std::vector<std::uint64_t> gone_programs();

}  // namespace postern::internal
