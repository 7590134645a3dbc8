// What carries bytes between the processes of a job: a table of functions that a library of its own
// gives (libpostern_mpi), so that Postern itself is linked with none.
//
// A message goes from one process to another under a tag; those of one sender and tag arrive in
// order. Nothing here waits. Functions return null, or a text that says what went wrong and lives
// as long as the process.
#pragma once
#include <cstddef>

namespace postern::clusters {

struct Transport {
  /// A message under way; the transport's own.
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
  /// Nobody waits for it any more. What was to be received does not arrive later.
  void (*abandon)(Request* request);
  /// Whether a message with this tag has come from anybody, and how long it is.
  const char* (*look)(int tag, bool* there, int* from, std::size_t* bytes);
};
inline constexpr int transport_version = 1;

/// What the library exports as `postern_transport`: joins the job; null, and why, when it cannot.
using OpenTransport = const Transport*(const char** error);

}  // namespace postern::clusters
