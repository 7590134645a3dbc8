// Answers requests once, and not before nobody shows their operands' memory any more.
#include "service.h"

#include "terms.h"

namespace postern_beam {

namespace {

// A call in a loop often comes this soon, and a process that waits takes as long to be woken.
constexpr std::int64_t longest_look_ns = 20'000;

Outcome outcome(int code) {
  if (code == PN_OK || code == PN_EMPTY) return {code};
  return {code, pn_last_error()};
}

/// Who serves a name, so that a server which is gone does not take the name from the next one.
struct Names {
  std::mutex guard;
  std::map<std::string, const Service*> served;
};
Names& names() {
  static Names* const all = new Names;  // servers may end after the statics have
  return *all;
}

Outcome was_answered() { return {PN_NOT_FOUND, "the request was answered already"}; }

}  // namespace

Cause no_cause() { return {nullptr, release_cause}; }

Open::Open(std::shared_ptr<Service> service, const pn_request* request)
    : service_(std::move(service)), tag_(request->tag), request_(request) {}

Open::~Open() { service_->forget(tag_); }

bool Open::with_firing(const std::function<void(const pn_firing&)>& look) {
  const std::scoped_lock lock(guard_);
  if (answered_) return false;
  look(request_->firing);
  return true;
}

Outcome Open::reply(const std::vector<pn_array>* results) {
  const std::scoped_lock lock(guard_);
  if (answered_) return was_answered();
  pn_bridge* const bridge = service_->bridge();
  if (pn_bridge_stopped(bridge, tag_) == 1) return settle_late();
  static const pn_array none{};  // an empty list is a reply too
  const pn_array* arrays = nullptr;
  if (results) arrays = results->empty() ? &none : results->data();
  const std::size_t count = results ? results->size() : 0;
  const bool held = lent_;
  // Now, for what holds the arrays may be what lends the operands.
  int code = PN_OK;
  if (!held)
    code = pn_bridge_reply(bridge, tag_, arrays, count);
  else if (arrays)
    code = pn_bridge_fill(bridge, tag_, arrays, count);
  const Outcome done = outcome(code);
  answered_ = done.code != PN_BAD_RESULT && done.code != PN_INVALID_ARGUMENT;
  if (held && code == PN_OK) return {PN_EMPTY};
  return done;
}

Outcome Open::fail(int code, const std::string& text, Cause cause) {
  const std::scoped_lock lock(guard_);
  if (answered_) return was_answered();
  answered_ = true;
  code_ = code == PN_OK ? static_cast<int>(PN_UNKNOWN) : code;
  text_ = text;
  cause_ = std::move(cause);
  if (pn_bridge_stopped(service_->bridge(), tag_) == 1) return settle_late();
  return lent_ ? Outcome{PN_EMPTY} : settle();
}

bool Open::stopped() const { return pn_bridge_stopped(service_->bridge(), tag_) != 0; }

bool Open::held() const {
  const std::scoped_lock lock(guard_);
  return answered_ && lent_;
}

void Open::lend() {
  const std::scoped_lock lock(guard_);
  lent_ = true;
}

void Open::give_back() {
  const std::scoped_lock lock(guard_);
  lent_ = false;
  if (answered_) settle();
}

Outcome Open::settle() {
  pn_bridge* const bridge = service_->bridge();
  if (code_ == PN_OK) return outcome(pn_bridge_reply(bridge, tag_, nullptr, 0));
  const auto release = cause_ ? release_cause : nullptr;
  return outcome(
      pn_bridge_fail_with(bridge, tag_, code_, text_.c_str(), cause_.release(), release));
}

/// Nobody waits for the answer; the memory is the library's once it has one.
Outcome Open::settle_late() {
  answered_ = true;
  if (!lent_) settle();
  return {PN_CANCELLED, "the run had ended before the answer came, which nobody gets"};
}

Service::~Service() { pn_bridge_free(bridge_); }

Outcome Service::serve(const std::string& name, bool replace) {
  Names& all = names();
  const std::scoped_lock lock(all.guard);
  const Outcome done = outcome(pn_bridge_serve(bridge_, name.c_str(), replace));
  if (done.code == PN_OK) all.served[name] = this;
  return done;
}

bool Service::serves(const std::string& name) const {
  Names& all = names();
  const std::scoped_lock lock(all.guard);
  const auto found = all.served.find(name);
  return found != all.served.end() && found->second == this;
}

Outcome Service::next(std::shared_ptr<Open>& out) {
  const pn_request* request = nullptr;
  const Outcome came = outcome(pn_bridge_next(bridge_, longest_look_ns, &request));
  if (came.code != PN_OK) return came;
  out = std::make_shared<Open>(shared_from_this(), request);
  const std::scoped_lock lock(guard_);
  open_[request->tag] = out;
  return {};
}

void Service::end(const std::string& text) {
  {
    Names& all = names();
    const std::scoped_lock lock(all.guard);
    for (auto at = all.served.begin(); at != all.served.end();) {
      const bool ours = at->second == this;
      if (ours) pn_unregister(at->first.c_str());
      at = ours ? all.served.erase(at) : std::next(at);
    }
  }
  pn_bridge_end(bridge_);
  std::vector<std::shared_ptr<Open>> left;
  {
    const std::scoped_lock lock(guard_);
    for (const auto& [tag, open] : open_)
      if (auto still = open.lock()) left.push_back(std::move(still));
  }
  for (const std::shared_ptr<Open>& open : left) open->fail(PN_CLOSED, text);
}

void Service::forget(std::uint64_t tag) {
  const std::scoped_lock lock(guard_);
  open_.erase(tag);
}

}  // namespace postern_beam
