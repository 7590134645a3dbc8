// The C interface: runs that are started.
#include <functional>
#include <ostream>
#include <streambuf>

#include "c/c_api.h"
#include "core/check.h"
#include "run/start.h"

using namespace postern;
using c::guarded;

namespace postern::c {

namespace {

/// The host's functions of one run. Lives as long as the run may call them.
class Watcher : std::streambuf {
 public:
  explicit Watcher(const pn_start_options& options) : options_(options), stream_(this) {}
  ~Watcher() override {
    if (released_ && options_.release) options_.release(options_.user);
  }
  Watcher(const Watcher&) = delete;

  /// From now on `user` is ours.
  void take_over() { released_ = true; }
  /// Where the run's prints go; null when the host has no function for them.
  std::ostream* sink() {
    if (options_.print) return &stream_;
    return nullptr;
  }
  void ended() const {
    if (options_.ended) options_.ended(options_.user);
  }

 private:
  // One write for each print, of whole lines.
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    options_.print(options_.user, text, static_cast<std::size_t>(size));
    return size;
  }
  int_type overflow(int_type character) override {
    const char text = traits_type::to_char_type(character);
    return xsputn(&text, 1) == 1 ? character : traits_type::eof();
  }

  const pn_start_options options_;
  std::ostream stream_;
  bool released_ = false;
};

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
  auto made = std::unique_ptr<pn_started>(new pn_started{
      program.program.start(arguments_of(program, arguments, count), of_run, Place{})});
  watcher->take_over();
  detail::keep_with(*made->run.internal(), watcher);
  detail::at_end_of(*made->run.internal(), [watcher] { watcher->ended(); });
  *out = made.release();
  return PN_OK;
}

}  // namespace
}  // namespace postern::c

int pn_start(const pn_program* program, const pn_tensor* const* arguments, size_t count,
             pn_started** out) {
  pn_start_options options{};
  options.size = sizeof options;
  return pn_start_with(program, arguments, count, &options, out);
}

int pn_start_with(const pn_program* program, const pn_tensor* const* arguments, size_t count,
                  const pn_start_options* options, pn_started** out) {
  return guarded([&] {
    check(program && options && out, "pn_start_with: program, options or out is NULL");
    check(options->size == sizeof *options, "pn_start_with: options of {} bytes, expected {}",
          options->size, sizeof *options);
    return c::start(*program, arguments, count, *options, out);
  });
}

int pn_device_count(size_t* out) {
  return guarded([&] {
    check(out != nullptr, "pn_device_count: out is NULL");
    *out = devices().size();
    return PN_OK;
  });
}
