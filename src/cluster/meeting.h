// One collective of one device: what it sends to and gets from the others of its group. Before data
// moves both sides compare what they are about; short data comes with that.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace postern::clusters {

/// What two processes must have in common to meet.
struct Subject {
  std::string place;   // "call 'psum' at main.cc:12"
  std::string detail;  // "sum of f32[3] over processes 0, 1": same on both sides
};

/// Bytes to or from a process of the cluster.
struct Out {
  int to;
  const void* data;
  std::size_t bytes;
};
struct In {
  int from;
  void* data;
  std::size_t bytes;
};

class Meeting {
 public:
  /// `stopped`: whether the run wants to end. `device`: which of the process's. The subject must
  /// live as long as this.
  Meeting(Cluster& cluster, Turn turn, int device, const Subject& subject,
          std::function<bool()> stopped);

  /// Compares with every process that is sent to or received from, which do the same, then moves
  /// the data. Throws Error when they are about something else, when another process has failed,
  /// and when the run wants to end.
  void exchange(std::span<const Out> out, std::span<const In> in);
  /// Moves more, between processes that have compared.
  void transfer(std::span<const Out> out, std::span<const In> in);

 private:
  struct Greeting;
  class Requests;
  void compare(const Greeting& mine, const Greeting& theirs, int peer) const;

  Cluster& cluster_;
  const Turn turn_;
  const int device_;
  const Subject& subject_;
  const std::function<bool()> stopped_;
};

}  // namespace postern::clusters
