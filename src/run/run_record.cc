// The life of a run.
#include "run/run_record.h"

#include <algorithm>

#include "host/handler.h"
#include "host/registry.h"
#include "run/compiled.h"

namespace postern::run {

RunRecord::RunRecord(const pjrt::Plugin& plugin) : execute_context_(plugin) {
  execute_context_.add(host::run_state_type, static_cast<host::RunState*>(this));
}

RunRecord::~RunRecord() = default;

void RunRecord::begin(std::shared_ptr<const CompiledProgram> program, Lane& lane) {
  lane_ = &lane;
  number = lane.run.load(std::memory_order_relaxed);
  device = lane.device;
  poison = false;
  prepare(std::move(program));
}

void RunRecord::begin(std::shared_ptr<const CompiledProgram> program, LaneGroup group) {
  group_ = std::move(group.lanes);
  number = group_.front()->run.load(std::memory_order_relaxed);
  device = -1;
  poison = true;
  ordinals.clear();
  if (group.client == 1) {
    first_ordinal = Runtime::get().spare_ordinal(*group_.front());
    for (const Lane* lane : group_) ordinals.push_back(lane->device);
  }
  prepare(std::move(program));
}

void RunRecord::prepare(std::shared_ptr<const CompiledProgram> program) {
  program_ = std::move(program);
  sites = program_->sites_.data();
  site_count = program_->sites_.size();
  owner = program_;
  if (program_->named_) {  // this run has sites of its own
    auto resolved = std::make_shared<const std::vector<host::HostSite>>(host::resolve_names(program_->sites_));
    sites = resolved->data();
    owner = std::move(resolved);
  }
  never_waits = host::in_delivery();
  if (host::timeline::on()) began_ = host::timeline::Clock::now();
}

bool RunRecord::finish(std::span<const pjrt::Event> complete) {
  if (std::ranges::all_of(complete, &pjrt::Event::is_ready)) {
    release();
    return true;
  }
  self_ = shared_from_this();
  waits_ = complete.size();
  const std::shared_ptr<RunRecord> alive = self_;
  for (const pjrt::Event& e : complete) e.on_ready(completed, this);
  return false;
}

void RunRecord::completed(void* user, const pjrt::Failure*) noexcept {
  auto* record = static_cast<RunRecord*>(user);
  if (record->waits_.fetch_sub(1) != 1) return;
  std::shared_ptr<RunRecord> last = std::move(record->self_);
  const Left left = record->end();
  last.reset();  // a failure that nobody saw is reported before a barrier goes on
  left.leave();
}

RunRecord::Left RunRecord::end() noexcept {
  close();
  if (program_ && began_ != host::timeline::Clock::time_point() && host::timeline::on())
    host::timeline::add(host::timeline::Kind::execute, host::timeline::module_name(program_->module().text), std::exchange(began_, {}),
                        host::timeline::Clock::now(), device, number);
  // The functions may go now, even while results live on.
  owner.reset();
  program_.reset();
  return {std::exchange(lane_, nullptr), std::exchange(group_, {})};
}

void RunRecord::Left::leave() const {
  if (lane) Runtime::get().leave(*lane);
  for (Lane* l : group) Runtime::get().leave(*l);
}

void RunRecord::release() noexcept { end().leave(); }

void RunRecord::refuse_own_wait() {
  // A listener of an asynchronous tap that waits for a run must not keep it waiting for room in the listener's own queue.
  if (host::in_delivery()) never_waits = true;
  for (const host::Nesting* n = host::nesting(); n; n = n->outer)
    if (n->run == this)
      throw CallbackError(ErrorCode::reentry,
                          fmt::format("{} waits for a result of the run that is calling it", host::describe(*n->site->spec)),
                          Site{n->site->spec->name, n->site->spec->place}, n->device, nullptr);
}

}  // namespace postern::run
