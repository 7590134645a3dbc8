// libpostern_mpi: messages between processes by MPI, on a communicator of Postern's own. MPI is
// begun here unless the application has begun it, and ended by whoever began it.
#define OMPI_SKIP_MPICXX 1  // nothing of the C++ interface that MPI had once
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "cluster/transport.h"

namespace {

using postern::clusters::Transport;

MPI_Comm communicator = MPI_COMM_NULL;
Transport transport{};
char library[MPI_MAX_LIBRARY_VERSION_STRING];

/// MPI's text for an error, kept for good; there are few different ones.
const char* text_of(int code) {
  static std::mutex guard;
  static auto* const known = new std::map<int, std::string>;
  const std::scoped_lock lock(guard);
  const auto [entry, fresh] = known->try_emplace(code);
  if (fresh) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "an error of MPI";
    entry->second = "MPI: " + std::string(text, static_cast<std::size_t>(length));
  }
  return entry->second.c_str();
}
const char* result(int code) { return code == MPI_SUCCESS ? nullptr : text_of(code); }

/// MPI aborts the process when it is called after its end.
const char* ended() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized ? "the application has ended MPI" : nullptr;
}

MPI_Request& request_of(Transport::Request& r) {
  static_assert(sizeof(MPI_Request) <= sizeof r.handle);
  return reinterpret_cast<MPI_Request&>(r.handle);
}

const char* send(int to, int tag, const void* data, std::size_t bytes, Transport::Request* made) {
  if (const char* error = ended()) return error;
  return result(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, communicator,
                          &request_of(*made)));
}

const char* receive(int from, int tag, void* data, std::size_t bytes, Transport::Request* made) {
  if (const char* error = ended()) return error;
  return result(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, communicator,
                          &request_of(*made)));
}

const char* test(Transport::Request* request, bool* through) {
  if (const char* error = ended()) return error;
  int flag = 0;
  const int code = MPI_Test(&request_of(*request), &flag, MPI_STATUS_IGNORE);
  *through = flag != 0;
  return result(code);
}

void abandon(Transport::Request* request) {
  if (ended()) return;
  MPI_Request& r = request_of(*request);
  MPI_Cancel(&r);
  MPI_Request_free(&r);
}

const char* look(int tag, bool* there, int* from, std::size_t* bytes) {
  *there = false;
  if (const char* error = ended()) return error;
  int flag = 0, count = 0;
  MPI_Status status;
  const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator, &flag, &status);
  if (code != MPI_SUCCESS || !flag) return result(code);
  *there = true;
  *from = status.MPI_SOURCE;
  const int counted = MPI_Get_count(&status, MPI_BYTE, &count);
  *bytes = static_cast<std::size_t>(count);
  return result(counted);
}

void finalize() {
  if (!ended()) MPI_Finalize();
}

const char* join() {
  int begun = 0, level = 0;
  MPI_Initialized(&begun);
  if (const char* error = ended()) return error;
  if (begun) {
    MPI_Query_thread(&level);
  } else {
    if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level))
      return text_of(code);
    std::atexit(finalize);
  }
  if (level < MPI_THREAD_MULTIPLE)
    return "MPI must be begun with MPI_THREAD_MULTIPLE, for programs run on several threads";
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &communicator)) return text_of(code);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return nullptr;
}

int greatest_tag() {
  void* value = nullptr;
  int found = 0;
  constexpr int promised = 32767;  // by the standard
  if (MPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found) != MPI_SUCCESS || !found)
    return promised;
  return *static_cast<int*>(value);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Transport* postern_transport(
    const char** error) {
  if ((*error = join())) return nullptr;
  int length = 0;
  MPI_Get_library_version(library, &length);
  if (char* const end = std::strpbrk(library, ",\n")) *end = '\0';
  transport = {
      postern::clusters::transport_version, library, 0, 1, 0, send, receive, test, abandon, look};
  MPI_Comm_rank(communicator, &transport.rank);
  MPI_Comm_size(communicator, &transport.size);
  const int tag = greatest_tag();
  transport.tags = tag == std::numeric_limits<int>::max() ? tag : tag + 1;
  return &transport;
}
