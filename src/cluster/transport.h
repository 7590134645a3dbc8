// What carries bytes between the processes of a job: a table of functions that a library of its own
// gives (libpostern_mpi), so that Postern itself is linked with none.
//
// A message goes from one process to another under a tag; those of one sender and tag arrive in
// order. Nothing here waits, but for `share`. Functions return null, or a text that says what went
// wrong and lives as long as the process.
#pragma once
#include <cstddef>

namespace postern::internal::clusters {

struct Transport {
  /// A message under way; the transport's own. Its memory is the transport's until it has ended.
  struct Request {
    void* handle = nullptr;
  };
  int version;       // transport_version
  const char* name;  // "Open MPI v4.1.4"
  int rank, size;
  int tags;  // tags are 0 to this - 1
  const char* (*send)(int to, int tag, const void* data, std::size_t bytes, Request* made);
  const char* (*receive)(int from, int tag, void* data, std::size_t bytes, Request* made);
  /// Whether it is through; a request that is has ended.
  const char* (*test)(Request* request, bool* through);
  /// Nobody waits for it any more, and the process ends.
  void (*abandon)(Request* request);
  /// Whether a message with this tag has come from anybody, and how long it is.
  const char* (*look)(int tag, bool* there, int* from, std::size_t* bytes);
  /// Null, or why no message can be sent any more.
  const char* (*ended)();

  /// The processes on this machine, this one included, by rank.
  const int* machine;
  int machine_size;
  /// Memory of zeros that the processes on this machine have in common: all of them call it, at
  /// most once. Null where there is none, or where one of them wants none (0 bytes).
  void* (*share)(std::size_t bytes);
  /// Called before messages end, while they can still be sent.
  void (*before_end)(void (*act)());
};
inline constexpr int transport_version = 2;

/// What the library exports as `postern_transport`: joins the job; null, and why, when it cannot.
using OpenTransport = const Transport*(const char** error);

}  // namespace postern::internal::clusters
