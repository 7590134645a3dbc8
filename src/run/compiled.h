// CompiledProgram: a lowered program with its executables and sites, ready to run.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <postern/detail/small_vector.h>
#include <postern/program.h>

#include "core/mutex.h"
#include "core/value.h"
#include "lower/lowering.h"
#include "pjrt/executable.h"
#include "run/ordered.h"
#include "run/run_record.h"

namespace postern::internal::run {

/// One compiled text in each form that a platform needed; shared by all programs with that text.
class CompiledText {
 public:
  CompiledText(std::string text, const Backend& backend)
      : text_(std::move(text)), backend_(&backend) {}
  /// The executable for runs on a lane. Runs of a portable one must name the lane's device.
  struct Choice {
    const pjrt::Executable& executable;
    const pjrt::Device* device;
  };
  Choice on(const Lane& lane);
  const pjrt::Executable& main();

 private:
  // Naming a device costs XLA a twentieth of a small run, so that the first device has an
  // executable for itself. From any_spare_device on, one for each spare client.
  enum Form : int { first_device, any_device, any_spare_device };
  static constexpr std::size_t few = 3;
  Form form_of_main() const;
  const pjrt::Executable& in_form(int form);  // made when it is first asked for
  const pjrt::Executable& in_form_locked(int form);

  std::string text_;
  const Backend* backend_;
  Mutex guard_;
  std::atomic<const pjrt::Executable*> ready_[few] = {};  // found without the lock
  std::map<int, pjrt::Executable> executables_;
};

/// How many texts that were compiled in this process are kept.
constexpr std::size_t texts_kept = 512;

/// Returns the executable of this text, from memory, from disk, or compiled now.
std::shared_ptr<CompiledText> compiled_text(const std::string& text, const Backend& backend);

/// Returns the FFI targets that a text calls beside our own, in words; null for none.
std::shared_ptr<const std::string> targets_of(std::string_view text);

class ArgumentsInPlace;
class PartitionedCode;
struct Home;

/// The buffers that XLA makes of a run's results, which end with this but for those taken.
struct ResultBuffers {
  ResultBuffers(const PJRT_Api* of, std::size_t count) : api(of), list(count) {
    std::ranges::fill(list, nullptr);
  }
  ResultBuffers(const ResultBuffers&) = delete;
  ~ResultBuffers() {
    for (PJRT_Buffer* b : list) pjrt::Buffer(api, b);
  }
  std::span<PJRT_Buffer*> span() { return {list.data(), list.size()}; }
  pjrt::Buffer take(std::size_t i) { return {api, std::exchange(list[i], nullptr)}; }

  const PJRT_Api* const api;
  detail::SmallVector<PJRT_Buffer*, 8> list;
};

/// A program lowered for this process.
struct ProgramModule : Module {
  // How inputs and results lie over processes, of which main has this one's parts; none: as
  // anything on this process alone. Empty where nothing does.
  std::vector<std::optional<Sharding>> global_inputs, global_results;
  bool any_number = false;           // the text is the same for any number of processes
  const Backend* backend = nullptr;  // what it is for; null: for whatever compiles it
};

class CompiledProgram : public std::enable_shared_from_this<CompiledProgram> {
 public:
  /// Takes as `captures` the values of the program's last inputs; those that the module did not
  /// write out become hidden arguments.
  CompiledProgram(std::shared_ptr<const ProgramModule> module, std::size_t arguments,
                  Tensors captures);
  ~CompiledProgram();

  const ProgramModule& module() const { return *module_; }
  const Backend& backend() const { return *backend_; }
  std::size_t result_count() const { return module_->results.size(); }
  const pjrt::Executable& executable() const;
  bool calls() const { return !sites_.empty(); }
  bool calls_processes() const { return of_processes_; }

  /// Runs with these argument leaves. `record`: a run prepared by the caller (with deadline,
  /// context), else one is made where needed. With `request` waits until the run is over.
  void run(std::span<const Tensor* const> arguments, std::span<Tensor> results,
           std::shared_ptr<RunRecord> record = nullptr, RunRequest* request = nullptr) const;
  /// Runs one that calls nobody on memory, of `types` and of its results, and waits.
  void run_in_place(std::span<const void* const> arguments, std::span<const Type> types,
                    std::span<void* const> results, ArgumentsInPlace& buffers) const;

 private:
  friend class RunRecord;
  /// Runs it with arguments and results of this process alone.
  void run_here(std::span<const Tensor* const> arguments, std::span<Tensor> results,
                std::shared_ptr<RunRecord> record, RunRequest* request) const;
  void run_plain(std::span<const Tensor* const> arguments, std::span<Tensor> results) const;
  void run_calling(std::span<const Tensor* const> arguments, std::span<Tensor> results,
                   std::shared_ptr<RunRecord> record, RunRequest* request) const;
  void run_partitioned(std::span<const Tensor* const> arguments, std::span<Tensor> results,
                       std::shared_ptr<RunRecord> record, RunRequest* request) const;
  bool takes(std::size_t parameter) const;  // its memory, for results
  /// Where it runs with these arguments. Throws TypeError where that is on another platform.
  Home home(std::span<const Tensor* const> arguments) const;
  const Tensor& parameter(std::size_t i, std::span<const Tensor* const> arguments) const;
  /// Has the platform ready what the calls need on the lane's device, once.
  void ready_on(const Lane& lane) const;
  /// Throws TypeError where what it takes is given to it once more.
  void refuse_donated_twice(std::span<const Tensor* const> arguments) const;
  struct Arguments;

  std::shared_ptr<const ProgramModule> module_;
  const Backend* backend_;
  std::size_t arguments_;
  Tensors captures_;
  std::vector<host::HostSite> sites_;
  bool named_ = false;                             // some sites are found by name
  bool of_processes_ = false;                      // some meet other processes
  Reach reach_ = Reach::none;                      // of its ordered effects
  bool queues_work_ = false;                       // its functions may, on the device
  mutable std::atomic<std::uint64_t> readied_{0};  // devices, a bit each (ready_on)
  std::shared_ptr<CompiledText> code_;             // either this
  std::shared_ptr<PartitionedCode> partitioned_;   // or that
  std::vector<SitePtr> placed_;                    // calls that name a device
  std::shared_ptr<const std::string> targets_;     // of FFI that it calls, in words; null for none
};

/// What is lowered: a program, and what is known of its arguments and results.
struct Lowerable {
  std::string name;
  ProgramPtr program;     // simplified
  std::size_t arguments;  // the first inputs
  Tensors captures;       // values of the others
  std::vector<bool> donated;
  std::vector<std::optional<Sharding>> arguments_on,
      results_on;                // by leaf; none: the argument's own, and as XLA chooses
  std::size_t gather_limit = 0;  // bytes; 0: as Config says
};
/// Lowers it. Captures of few bytes are written into the text.
std::shared_ptr<const ProgramModule> lower(const Lowerable& program);
/// Lowers it once more, to be kept: for no platform in particular, with all captures written out.
std::shared_ptr<const ProgramModule> lower_for_file(const Lowered& program);

}  // namespace postern::internal::run
