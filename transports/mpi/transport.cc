// libpostern_mpi: messages between processes by MPI, on a communicator of Postern's own. MPI is
// begun here unless the application has begun it, and ended by whoever began it. Processes of one
// machine also get memory in common.
#define OMPI_SKIP_MPICXX 1  // nothing of the C++ interface that MPI had once
#define MPICH_SKIP_MPICXX 1
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cluster/transport.h"

namespace {

using postern::internal::clusters::Transport;

MPI_Comm communicator = MPI_COMM_NULL, machine = MPI_COMM_NULL;
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

constexpr const char* over = "the application has ended MPI";

/// MPI aborts the process when it is called after its end. So its end, which MPI tells of before it
/// comes, waits for the calls under way.
class Calls {
 public:
  class Call {
   public:
    Call() {
      under_way.fetch_add(1);
      begun_ = !closed.load();
      if (!begun_) under_way.fetch_sub(1);
    }
    ~Call() {
      if (begun_) under_way.fetch_sub(1);
    }
    Call(const Call&) = delete;
    explicit operator bool() const { return begun_; }

   private:
    bool begun_;
  };
  static bool are_over() { return closed.load(std::memory_order_relaxed); }
  /// None of them waits for anything.
  static void end() {
    closed = true;
    while (under_way.load() > 0) std::this_thread::yield();
  }

 private:
  static inline std::atomic<int> under_way{0};
  static inline std::atomic<bool> closed{false};
};

MPI_Request& request_of(Transport::Request& r) {
  static_assert(sizeof(MPI_Request) <= sizeof r.handle);
  return reinterpret_cast<MPI_Request&>(r.handle);
}

const char* send(int to, int tag, const void* data, std::size_t bytes, Transport::Request* made) {
  const Calls::Call call;
  if (!call) return over;
  return result(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, communicator,
                          &request_of(*made)));
}

const char* receive(int from, int tag, void* data, std::size_t bytes, Transport::Request* made) {
  const Calls::Call call;
  if (!call) return over;
  return result(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, communicator,
                          &request_of(*made)));
}

const char* test(Transport::Request* request, bool* through) {
  const Calls::Call call;
  if (!call) return over;
  int flag = 0;
  const int code = MPI_Test(&request_of(*request), &flag, MPI_STATUS_IGNORE);
  *through = flag != 0;
  return result(code);
}

void abandon(Transport::Request* request) {
  const Calls::Call call;
  if (!call) return;
  MPI_Request& r = request_of(*request);
  MPI_Cancel(&r);
  MPI_Request_free(&r);
}

const char* look(int tag, bool* there, int* from, std::size_t* bytes) {
  *there = false;
  const Calls::Call call;
  if (!call) return over;
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

const char* ended() { return Calls::are_over() ? over : nullptr; }

void (*last_act)() = nullptr;
void before_end(void (*act)()) { last_act = act; }

/// MPI_Finalize calls it first, when everything still works.
int about_to_end(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*state*/) {
  if (last_act) last_act();
  Calls::end();
  return MPI_SUCCESS;
}

pid_t began_in = 0;

void finalize() {
  if (::getpid() != began_in) return;  // a child that was forked off
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

/// The processes of this machine open a file without a name that the first of them has made,
/// through its entry in /proc. What they find there says whether it is the one.
void* share(std::size_t bytes) {
  struct Offer {
    std::uint64_t word = 0;
    int process = 0, file = -1;
  } offer;
  int place = 0;
  MPI_Comm_rank(machine, &place);
  if (place == 0) {
    std::random_device random;
    offer = {(std::uint64_t{random()} << 32 | random()) | 1, static_cast<int>(::getpid()),
             bytes > 0 ? ::memfd_create("postern", MFD_CLOEXEC) : -1};
    if (offer.file >= 0 && ::ftruncate(offer.file, static_cast<off_t>(bytes)) != 0) {
      ::close(offer.file);
      offer.file = -1;
    }
    if (offer.file >= 0 &&
        ::pwrite(offer.file, &offer.word, sizeof offer.word, 0) != sizeof offer.word)
      offer.word = 0;
  }
  MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, machine);
  int file = offer.file;
  if (place > 0 && file >= 0 && bytes > 0) {
    const std::string path =
        "/proc/" + std::to_string(offer.process) + "/fd/" + std::to_string(offer.file);
    file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  void* memory = MAP_FAILED;
  std::uint64_t word = 0;
  if (bytes > 0 && file >= 0 && offer.word != 0 &&
      ::pread(file, &word, sizeof word, 0) == sizeof word && word == offer.word)
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  int good = memory != MAP_FAILED, all = 0;
  MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, machine);
  if (place == 0 && all) std::memset(memory, 0, sizeof word);
  MPI_Barrier(machine);
  if (file >= 0 && (place == 0 || bytes > 0)) ::close(file);
  if (all) return memory;
  if (good) ::munmap(memory, bytes);
  return nullptr;
}

/// The ranks of those who are on this machine too.
void find_machine() {
  static std::vector<int> ranks;
  if (MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, transport.rank, MPI_INFO_NULL,
                          &machine) == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    int count = 0;
    MPI_Comm_size(machine, &count);
    ranks.resize(static_cast<std::size_t>(count));
    MPI_Allgather(&transport.rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, machine);
  } else {
    ranks = {transport.rank};
  }
  transport.machine = ranks.data();
  transport.machine_size = static_cast<int>(ranks.size());
}

const char* join() {
  int begun = 0, level = 0, finalized = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&finalized);
  if (finalized) return over;
  if (begun) {
    MPI_Query_thread(&level);
  } else {
    if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level))
      return text_of(code);
    began_in = ::getpid();
    std::atexit(finalize);
  }
  if (level < MPI_THREAD_MULTIPLE)
    return "MPI must be begun with MPI_THREAD_MULTIPLE, for programs run on several threads";
  if (communicator != MPI_COMM_NULL) return "this process has failed to join before";
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &communicator)) return text_of(code);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, about_to_end, &key, nullptr) == MPI_SUCCESS)
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
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
  transport.version = postern::internal::clusters::transport_version;
  transport.name = library;
  transport.send = send;
  transport.receive = receive;
  transport.test = test;
  transport.abandon = abandon;
  transport.look = look;
  transport.ended = ended;
  transport.share = share;
  transport.before_end = before_end;
  MPI_Comm_rank(communicator, &transport.rank);
  MPI_Comm_size(communicator, &transport.size);
  find_machine();
  const int tag = greatest_tag();
  transport.tags = tag == std::numeric_limits<int>::max() ? tag : tag + 1;
  return &transport;
}
