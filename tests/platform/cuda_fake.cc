// CUDA on the host's memory.
#include "cuda_fake.h"

#include <postern/devices.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "platform/gpu/handler.h"

namespace postern::test {
using namespace internal;

namespace {

struct Event {
  void* stream = nullptr;
  std::shared_ptr<bool> done;
};

/// With this variable all programs of the process call back as those on a GPU do.
const bool installed = [] {
  if (std::getenv("POSTERN_TEST_STAND_IN")) gpu::stand_in(&FakeCuda::driver());
  return true;
}();

}  // namespace

FakeCuda& FakeCuda::get() {
  static auto* const fake = new FakeCuda;
  return *fake;
}

void FakeCuda::reset() {
  const std::scoped_lock lock(guard_);
  counts_.clear();
  failures_.clear();
  streams_.clear();
  on_host_.clear();
}

int FakeCuda::count(const std::string& name) {
  const std::scoped_lock lock(guard_);
  return counts_[name];
}

void FakeCuda::fail(const std::string& name, int after) {
  const std::scoped_lock lock(guard_);
  failures_[name] = after + 1;
}

void FakeCuda::run(void* stream) {
  const std::scoped_lock lock(guard_);
  for (auto& queue = streams_[stream]; !queue.empty(); queue.pop_front()) queue.front()();
}

std::size_t FakeCuda::queued(void* stream) {
  const std::scoped_lock lock(guard_);
  return streams_[stream].size();
}

std::size_t FakeCuda::pinned() {
  const std::scoped_lock lock(guard_);
  return pinned_;
}

void FakeCuda::put_on_host(const void* memory) {
  const std::scoped_lock lock(guard_);
  on_host_.insert(memory);
}

int FakeCuda::call(const std::string& name) {
  const std::scoped_lock lock(guard_);
  ++counts_[name];
  const auto wanted = failures_.find(name);
  if (wanted == failures_.end() || --wanted->second > 0) return 0;
  failures_.erase(wanted);
  return 700;
}

void FakeCuda::queue(void* stream, std::function<void()> work) {
  if (!stream) return work();
  const std::scoped_lock lock(guard_);
  streams_[stream].push_back(std::move(work));
}

struct FakeFunctions {
  static FakeCuda& fake() { return FakeCuda::get(); }

  static int allocate(void** memory, std::size_t bytes) {
    if (const int error = fake().call("allocate")) return error;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    const std::scoped_lock lock(fake().guard_);
    ++fake().pinned_;
    return 0;
  }
  static int free(void* memory) {
    std::free(memory);
    const std::scoped_lock lock(fake().guard_);
    --fake().pinned_;
    return 0;
  }
  static bool on_host(const void* memory) {
    const std::scoped_lock lock(fake().guard_);
    return fake().on_host_.contains(memory);
  }
  static int copy(const char* name, void* to, const void* from, std::size_t bytes, void* stream) {
    if (const int error = fake().call(name)) return error;
    fake().queue(stream, [=] { std::memcpy(to, from, bytes); });
    return 0;
  }
  static int copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) {
    return copy("copy_to_host", to, from, bytes, stream);
  }
  static int copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) {
    return copy("copy_to_device", to, from, bytes, stream);
  }
  static int fill(void* to, unsigned char value, std::size_t bytes, void* stream) {
    if (const int error = fake().call("fill")) return error;
    fake().queue(stream, [=] { std::memset(to, value, bytes); });
    return 0;
  }
  static int synchronize(void* stream) {
    if (const int error = fake().call("synchronize")) return error;
    fake().run(stream);
    return 0;
  }
  static int create_event(void** event) {
    if (const int error = fake().call("create_event")) return error;
    *event = new Event;
    return 0;
  }
  static int record(void* event, void* stream) {
    if (const int error = fake().call("record")) return error;
    auto& e = *static_cast<Event*>(event);
    e = {stream, std::make_shared<bool>(false)};
    fake().queue(stream, [done = e.done] { *done = true; });
    return 0;
  }
  static int is_ready(void* event, bool* ready) {
    if (const int error = fake().call("is_ready")) return error;
    const std::scoped_lock lock(fake().guard_);
    *ready = *static_cast<Event*>(event)->done;
    return 0;
  }
  static int wait(void* event) {
    if (const int error = fake().call("wait")) return error;
    fake().run(static_cast<Event*>(event)->stream);
    return 0;
  }
  static int context_of(void*, void** context) {
    *context = &fake();
    return fake().call("context_of");
  }
  static int context_of_device(int, void** context) {
    *context = &fake();
    return fake().call("context_of_device");
  }
  static int enter(void*) { return fake().call("enter"); }
  static int leave() { return fake().call("leave"); }
  static std::string describe(int) { return "an illegal address was met"; }
};

bool leaves_are_in_place() { return devices().at(0).kind == "cpu" && !gpu::stood_in(); }

const gpu::Driver& FakeCuda::driver() {
  using F = FakeFunctions;
  static const gpu::Driver table{"CUDA",        F::allocate,          F::free,
                                 F::on_host,    F::copy_to_host,      F::copy_to_device,
                                 F::fill,       F::synchronize,       F::create_event,
                                 F::record,     F::is_ready,          F::wait,
                                 F::context_of, F::context_of_device, F::enter,
                                 F::leave,      F::describe};
  return table;
}

}  // namespace postern::test
