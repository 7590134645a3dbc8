// The state of a pool in checkpoints: a text with a line for each element, and bytes behind those
// that say how many.
#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

#include "core.h"

namespace postern::internal::pools {

namespace {

void put_bytes(std::ostream& out, std::string_view bytes) { out << bytes.size() << '\n' << bytes; }

std::string_view view_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads a number of bytes, and these. The stream fails where there are fewer.
std::string bytes_of(std::istream& in) {
  std::size_t count = 0;
  in >> count;
  in.get();
  const std::streampos here = in.tellg();
  in.seekg(0, std::ios::end);
  if (!in || static_cast<std::streamoff>(count) > in.tellg() - here) {
    in.setstate(std::ios::failbit);
    return {};
  }
  in.seekg(here);
  std::string bytes(count, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(count));
  return bytes;
}

void put_list(std::ostream& out, const std::deque<std::int32_t>& list) {
  out << list.size();
  for (const std::int32_t e : list) out << ' ' << e;
  out << '\n';
}

std::deque<std::int32_t> list_of(std::istream& in, std::int64_t size) {
  std::int64_t count = 0;
  in >> count;
  std::deque<std::int32_t> list;
  for (std::int64_t i = 0; in && i < count; ++i) {
    in >> list.emplace_back();
    if (list.back() < 0 || list.back() >= size) in.setstate(std::ios::failbit);
  }
  return list;
}

void take_bytes(std::istream& in, std::vector<std::byte>& bytes) {
  const std::string text = bytes_of(in);
  if (text.size() != bytes.size()) in.setstate(std::ios::failbit);
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  if (in) bytes.assign(data, data + text.size());
}

}  // namespace

/// While it lives nobody steps an element.
class Core::Saving {
 public:
  explicit Saving(Core& pool) : pool_(pool), lock_(pool.guard_) {
    ++pool.saving_;
    try {
      pool.wait(lock_, host::surrounding_run(),
                [&] { return !pool.stepping_ && pool.in_hand_ == 0; });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Saving() {
    if (!lock_) lock_.lock();
    end();
  }
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }
  Saving(const Saving&) = delete;

 private:
  void end() {
    --pool_.saving_;
    try {
      pool_.employ();
    } catch (...) {  // no thread: who receives tries again
    }
    pool_.changed_.notify_all();
  }
  Core& pool_;
  std::unique_lock<Mutex> lock_;
};

std::string Core::save() {
  if (!simulators_->can_save())
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{}: a checkpoint needs simulators with save() and load(), or << "
                            "and >>; SimulatorOptions::kept = false leaves them out",
                            label));
  Saving saving(*this);
  const Saved now{elements_, waiting_, ready_, sent_actions_, arrived_};
  saving.unlock();
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(std::numeric_limits<double>::max_digits10);
  out << "pool " << size << '\n';
  for (std::int64_t e = 0; e < size; ++e) {
    const Element& x = now.elements[static_cast<std::size_t>(e)];
    out << x.episode << ' ' << x.steps << ' ' << x.begins << ' ' << x.stepped.reward << ' '
        << x.stepped.terminated << ' ' << x.stepped.truncated << '\n';
    put_bytes(out, x.failure ? host::describe(x.failure) : "");
    put_bytes(out, simulators_->save(e));
  }
  put_list(out, now.waiting);
  put_list(out, now.ready);
  const bool sent = !now.waiting.empty() || !now.ready.empty();
  put_bytes(out, sent ? view_of(now.actions) : "");
  put_bytes(out, sent ? view_of(now.observations) : "");
  return std::move(out).str();
}

Core::Saved Core::read(std::istream& in, std::vector<std::string>& simulators) const {
  Saved then{std::vector<Element>(elements_.size()), {}, {}, {}, {}};
  for (Element& x : then.elements) {
    std::string reward;  // a stream would not read "inf" and "nan", which it writes
    in >> x.episode >> x.steps >> x.begins >> reward >> x.stepped.terminated >> x.stepped.truncated;
    std::size_t used = 0;
    x.stepped.reward = parse_number(reward, &used);
    if (used == 0 || used != reward.size()) in.setstate(std::ios::failbit);
    if (const std::string text = bytes_of(in); !text.empty())
      x.failure = std::make_exception_ptr(std::runtime_error(text));
    simulators.push_back(bytes_of(in));
  }
  then.waiting = list_of(in, size);
  then.ready = list_of(in, size);
  const bool sent = !then.waiting.empty() || !then.ready.empty();
  then.actions.resize(sent ? sent_actions_.size() : 0);
  then.observations.resize(sent ? arrived_.size() : 0);
  take_bytes(in, then.actions);
  take_bytes(in, then.observations);
  for (const std::int32_t e : then.waiting)
    then.elements[static_cast<std::size_t>(e)].where = Where::sent;
  for (const std::int32_t e : then.ready)
    then.elements[static_cast<std::size_t>(e)].where = Where::arrived;
  return then;
}

void Core::load(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string word;
  std::int64_t count = 0;
  in >> word >> count;
  if (in && count != size)
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{}: the checkpoint has {} elements, the pool {}", label, count, size));
  std::vector<std::string> simulators;
  Saved then = in ? read(in, simulators) : Saved{};
  if (!in) detail::unreadable_state(options.name);
  Saving saving(*this);
  saving.unlock();
  for (std::int64_t e = 0; e < size; ++e)
    simulators_->load(e, simulators[static_cast<std::size_t>(e)]);
  saving.lock();
  elements_.swap(then.elements);  // what they failed with goes after the lock
  waiting_ = std::move(then.waiting);
  ready_ = std::move(then.ready);
  if (!then.actions.empty()) sent_actions_ = std::move(then.actions);
  if (!then.observations.empty()) arrived_ = std::move(then.observations);
}

void Core::keep(const Place& place) {
  kept_.emplace(register_state(
      options.name, [self = shared_from_this()] { return self->save(); },
      [self = shared_from_this()](std::string_view text) { self->load(text); }, place));
}

}  // namespace postern::internal::pools
