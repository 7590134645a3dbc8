// What collectives over processes are: who meets, and what becomes of an array.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace postern::internal::clusters {

enum class Operation : std::uint8_t {
  sum,
  max,
  min,
  gather,    // parts one after another along `axis`
  scatter,   // the sum, cut along `axis`
  exchange,  // cut along `axis`, joined along `other`
  permute,   // by `pairs`; zeros for who is sent nothing
  index,     // where the process is, s32[]; meets nobody
  end,       // of the run: nobody goes on before all have come
  // Of the process at place `root` in the group (rooted.cc):
  broadcast,     // its array, for all
  scatter_from,  // its array, cut along `axis`
  gather_to,     // parts one after another along `axis`, for it; zeros for the others
  // Operands: what each of `other` devices of the process has, one after another, and the number of
  // this one. By `pairs` of places, each a process's place in the group times `other` and a
  // device's number.
  relay,
  count,  // how many the group has, s32[]; meets nobody
  pass    // a one; meets nobody
};
/// Returns whether processes meet in it.
bool communicates(Operation operation);
/// Converts to "sum", ...; and back, with a TypeError for what is none.
POSTERN_API const char* to_string(Operation operation);
Operation operation_named(const std::string& name);

/// The same on all processes, which lie in a grid, row-major, and meet along some axes.
struct Collective {
  Operation operation = Operation::end;
  std::int64_t axis = 0, other = 0;          // of the array
  std::vector<std::int64_t> grid, along;     // sizes; numbers of axes, the first changes slowest
  std::vector<std::pair<int, int>> pairs{};  // places in the group
  int root = 0;                              // a place in the group

  /// The processes that this rank meets, itself included, and its place among them.
  struct Group {
    std::vector<int> ranks;
    int place = 0;
    std::string text() const;  // "0, 1"
  };
  Group group(int rank) const;
};

/// Returns whether elements of this dtype can be summed (`sum`, `scatter`) or compared (`max`,
/// `min`) here.
bool reduces(DType dtype, Operation operation);

/// Returns what each of `n` processes has of one that takes an array alone. Throws TypeError where
/// `x` has not the axes, or cannot be cut, reduced or sent.
Type result_type(const Collective& c, Type x, std::int64_t n);

/// Runs what meets nobody.
POSTERN_API void run_alone(const Collective& c, const Collective::Group& group, void* y);

/// Returns what processes that meet in it must agree upon: "sum of f32[3] over processes 0, 1".
std::string detail_of(const Collective& c, const Collective::Group& group, const Type& x_type);

}  // namespace postern::internal::clusters
