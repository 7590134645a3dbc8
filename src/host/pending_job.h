// One started function, of PendingCalls.
#pragma once
#include <atomic>
#include <exception>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/limit.h"
#include "host/pending.h"
#include "host/stage.h"

namespace postern::internal::host {

struct PendingCalls::Job : detail::StopState {
  explicit Job(const Invocation& i)
      : site(&i.site),
        spec(site->spec),
        owner(i.run.owner),
        under_way(i.run.under_way),
        device(i.device),
        floats(i.run.floats),
        info(i.info(this)) {}

  const HostSite* site;  // as long as there is the owner
  const SitePtr spec;
  std::shared_ptr<const void> owner;
  std::shared_ptr<void> under_way;  // let go when the function has returned
  const int device;
  const FloatState floats;
  int depth = 0;
  std::uint64_t number = 0;     // of all started functions
  std::vector<RunName> inside;  // what its function is inside of, itself too
  TapInfo info;
  std::unique_ptr<bool[]> mask;
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> data;
  std::vector<std::size_t> bytes;  // of a ticket's part of each result

  Order order;  // in last_
  bool keeps_order = false;
  std::shared_ptr<Job> next;  // enters behind this one
  Job* before = nullptr;      // which enters behind that one, as long as it is queued so
  std::list<std::shared_ptr<Job>>::iterator at;
  std::atomic<bool> done{false};  // for who looks without the lock
  bool launched = false;          // it has a thread, or is with one that ends another
  bool begun = false, abandoned = false, ok = false;
  bool by_deadline = false;              // why it was abandoned
  bool seen = false, forgotten = false;  // its failure; by all who could wait
  Clock::time_point limit = Clock::time_point::max();
  std::shared_ptr<Job> left_out_by;  // the late one that it was to enter behind
  std::exception_ptr error, told;    // `told`: as barrier() throws it
  ErrorCode code = ErrorCode::ok;

  bool has_limit() const { return spec->timeout.count() > 0; }
  bool failed() const { return abandoned || (done && error); }
  std::string why_late() const { return too_late(*spec, by_deadline); }
};

}  // namespace postern::internal::host
