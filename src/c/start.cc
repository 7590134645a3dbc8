// The C interface: runs that are started.
#include <cstddef>
#include <cstring>
#include <ostream>
#include <streambuf>

#include "c/c_api.h"
#include "core/check.h"
#include "host/queue.h"
#include "run/start.h"

using namespace postern;
using namespace postern::internal;
using c::guarded;

namespace postern::internal::c {

namespace {

/// The host's functions of one run. Lives as long as the run may call them.
class Watcher : std::streambuf {
 public:
  explicit Watcher(const pn_start_options& options)
      : options_(options), stream_(this), user_(options.user, options.release) {}
  Watcher(const Watcher&) = delete;

  /// From now on `user` is ours.
  void take_over() { user_.is_ours = true; }
  /// Where the run's prints go; null when the host has no function for them.
  std::ostream* sink() {
    if (options_.print) return &stream_;
    return nullptr;
  }
  void ended() const {
    if (options_.ended) options_.ended(options_.user);
  }
  void delivered() const {
    if (options_.delivered) options_.delivered(options_.user);
  }

 private:
  // One write for each print, of whole lines.
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    options_.print(options_.user, text, size_of(size));
    return size;
  }
  int_type overflow(int_type character) override {
    const char text = traits_type::to_char_type(character);
    return xsputn(&text, 1) == 1 ? character : traits_type::eof();
  }

  const pn_start_options options_;
  std::ostream stream_;
  User user_;
};

/// The functions that a host gives for one run. Until take_over() nothing is released: what was
/// refused is still the host's.
class Bindings {
 public:
  std::vector<HookBinding> add(const pn_binding* list, std::size_t count, bool hooks) {
    const char* const what = hooks ? "hook" : "function";
    check(list || count == 0, "pn_start_with: {} {}s are given as NULL", count, what);
    std::vector<HookBinding> out;
    for (std::size_t i = 0; i < count; ++i) {
      const pn_binding& b = list[i];
      check(b.name && !b.function != !b.bridge,
            "pn_start_with: {} {} must have a name, and a function or a bridge", what, i);
      const auto& user = given_.emplace_back(std::make_shared<User>(b.user, b.release));
      out.push_back({b.name, b.function ? callee_of(b.name, b.function, user, hooks)
                                        : callee_of(b.name, *b.bridge, user, hooks)});
    }
    return out;
  }
  /// From now on what they are entered with is ours.
  void take_over() {
    for (const auto& user : given_) user->is_ours = true;
  }

 private:
  std::vector<std::shared_ptr<User>> given_;
};

/// Starts a run. What the host gave becomes ours once nothing can be refused any more.
int start(const pn_program& program, const pn_tensor* const* arguments, std::size_t count,
          const pn_start_options& options, pn_started** out) {
  check(options.deadline_ns >= 0, "pn_start_with: the deadline must be 0 or more, got {} ns",
        options.deadline_ns);
  const auto watcher = std::make_shared<Watcher>(options);
  std::optional<DeviceScope> on;
  if (options.device != 0) on.emplace(options.device, Place{});
  RunOptions of_run;
  of_run.deadline = std::chrono::nanoseconds(options.deadline_ns);
  of_run.sink = watcher->sink();
  Bindings bindings;
  of_run.hooks = bindings.add(options.hooks, options.hook_count, true);
  of_run.functions = bindings.add(options.functions, options.function_count, false);
  auto handle = std::unique_ptr<pn_started>(new pn_started{
      program.program.start(arguments_of(program, arguments, count), of_run, Place{})});
  watcher->take_over();
  bindings.take_over();
  const auto run = handle->run.internal();  // `ended` may free the handle
  detail::keep_with(*run, watcher);
  *out = handle.release();  // before the host may hear that the run has ended
  host::at_end_and_delivery(
      *run, [watcher] { watcher->ended(); }, [watcher] { watcher->delivered(); });
  return PN_OK;
}

}  // namespace
}  // namespace postern::internal::c

int pn_start(const pn_program* program, const pn_tensor* const* arguments, size_t count,
             pn_started** out) {
  pn_start_options options{};
  options.size = sizeof options;
  return pn_start_with(program, arguments, count, &options, out);
}

int pn_start_with(const pn_program* program, const pn_tensor* const* arguments, size_t count,
                  const pn_start_options* options, pn_started** out) {
  return guarded(program && options && out, "pn_start_with: program, options or out", [&] {
    constexpr std::size_t least = offsetof(pn_start_options, hooks);  // version 6
    check(options->size == least || options->size == sizeof *options,
          "pn_start_with: options of {} bytes, expected {}, or {} as of version 6", options->size,
          sizeof *options, least);
    pn_start_options all{};
    std::memcpy(&all, options, options->size);
    return c::start(*program, arguments, count, all, out);
  });
}

int pn_device_count(size_t* out) {
  return guarded(out != nullptr, "pn_device_count: out", [&] { *out = devices().size(); });
}
