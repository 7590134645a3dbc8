// A bridge and its open requests, whatever becomes of the processes that know them.
//
// A binary over an operand's memory may be passed on and kept, and the library takes that memory
// back once the request is answered. So an answer that comes while such binaries live is held until
// the VM has collected the last one. When the bridge's owner ends, what is open fails in the same
// manner, one by one; the bridge is closed when nothing is open any more.
#pragma once
#include <postern/c.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace postern_beam {

class Service;

/// A code of the C interface, and what it means here.
struct Outcome {
  int code = PN_OK;
  std::string text = {};
};

/// What a failure stands for: of keep_cause, or null.
using Cause = std::unique_ptr<void, void (*)(void*)>;
Cause no_cause();

/// A request that was taken. Any thread may answer it; the first answer counts.
class Open {
 public:
  Open(std::shared_ptr<Service> service, const pn_request* request);
  ~Open();
  Open(const Open&) = delete;

  /// Calls `look` with the firing, whose memory stays meanwhile; false when it was answered.
  bool with_firing(const std::function<void(const pn_firing&)>& look);
  /// With arrays, or for null with what was put in place. PN_EMPTY when binaries show the operands
  /// still, and it is answered behind them; PN_NOT_FOUND when it was answered before; PN_BAD_RESULT
  /// when the arrays do not fit, and then it is open; PN_CANCELLED when its run has ended, and then
  /// it is answered and nobody sees with what.
  Outcome reply(const std::vector<pn_array>* results);
  /// In the same manner.
  Outcome fail(int code, const std::string& text, Cause cause = no_cause());
  bool stopped() const;
  /// Answered, but not told.
  bool held() const;

  /// Binaries show the operands; told when the last one is gone.
  void lend();
  void give_back();

 private:
  Outcome settle();
  Outcome settle_late();

  const std::shared_ptr<Service> service_;
  const std::uint64_t tag_;
  mutable std::mutex guard_;
  const pn_request* request_;  // null once it is answered
  bool lent_ = false, answered_ = false;
  int code_ = PN_OK;  // of the failure that it is answered with
  std::string text_;
  Cause cause_ = no_cause();
};

class Service : public std::enable_shared_from_this<Service> {
 public:
  explicit Service(pn_bridge* bridge) : bridge_(bridge) {}
  ~Service();
  Service(const Service&) = delete;

  Outcome serve(const std::string& name, bool replace);
  /// Whether a call of that name comes here.
  bool serves(const std::string& name) const;
  /// PN_OK, or what pn_bridge_next says; it looks for a request and does not sleep.
  Outcome next(std::shared_ptr<Open>& out);
  /// Takes nothing more; what is open fails with PN_CLOSED and this text.
  void end(const std::string& text);
  pn_bridge* bridge() const { return bridge_; }
  void forget(std::uint64_t tag);

 private:
  pn_bridge* const bridge_;
  std::mutex guard_;
  std::map<std::uint64_t, std::weak_ptr<Open>> open_;
};

}  // namespace postern_beam
