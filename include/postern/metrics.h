// Metrics: what taps show, written where people look at it: TensorBoard, tables, JSON Lines.
//
//   auto board = pn::listen::tensorboard("runs/first");
//   pn::tap({.name = "loss"}, loss, board);
//
// A firing has a step: of several leaves a first one that is an integer of rank 0, as in
// `tap(std::tuple{i, loss, gradient}, board)`; else the firings of its place are counted, from 0.
// What `checkpoint` runs a second time is left out. What is written is in the file when the firing
// ends, so that a process that is killed has lost at most the firing that was under way. All
// listeners here are functions for tap and hook (sync or async), to be copied freely, and safe from
// several threads and devices at once. See docs/metrics.md.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/api.h>
#include <postern/listen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace postern::listen {

struct TensorBoardOptions {
  /// What becomes of leaves that have a rank: histograms of their elements, or images [height,
  /// width], [height, width, channels] or [n, height, width, channels] with 1, 3 or 4 channels, of
  /// u8 or of floats from 0 to 1.
  enum class Arrays : std::uint8_t { histograms, images } arrays = Arrays::histograms;
  int bins = 30;  // of a histogram, which spans the firing's finite elements
  OnError on_error = OnError::stop;
};

/// Writes TensorBoard's event files into a folder, which is made when there is none and is one run
/// there. Leaves of rank 0 are curves (as f32, which is all that TensorBoard shows), others see
/// TensorBoardOptions::arrays. Tags are "name", "name/path"; those of devices but the first, and of
/// derivatives, say so. A complex element counts by its absolute value.
///
/// Each process makes a file of its own, which sorts behind those that are there whatever the clock
/// says. Listeners of a process share a folder; two processes cannot.
class TensorBoard {
 public:
  /// Throws Error: failed_precondition when another process writes to the folder, unavailable when
  /// it cannot be written to; with OnError::go_on firings try again instead. TypeError for bins
  /// outside of 1 to 65536.
  POSTERN_API explicit TensorBoard(const std::filesystem::path& folder,
                                   const TensorBoardOptions& options = {},
                                   Place place = Place::current());
  /// Throws Error(unavailable) when the file cannot be written; then it is as it was. TypeError for
  /// what is no image.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

  /// Adds values from outside of programs. They wait for the tensor, throw what it throws (see
  /// Tensor::read), and the same errors otherwise.
  POSTERN_API void add(const std::string& tag, const Tensor& value, std::int64_t step,
                       Place place = Place::current()) const;
  POSTERN_API void add_text(const std::string& tag, const std::string& markdown,
                            std::int64_t step = 0) const;
  /// Adds what the run was started with, for the page that compares runs. Lists are shown as texts.
  /// Throws Error(unavailable) when the file cannot be written.
  POSTERN_API void add_hyperparameters(const Attributes& parameters) const;

 private:
  std::shared_ptr<struct TensorBoardState> state_;
};
/// Makes a TensorBoard; throws as its constructor does.
inline TensorBoard tensorboard(const std::filesystem::path& folder,
                               const TensorBoardOptions& options = {},
                               Place place = Place::current()) {
  return TensorBoard(folder, options, place);
}

struct PngOptions {
  OnError on_error = OnError::stop;
};
/// Writes images, a file for each: "x-{step}.png", or {step:06} as fmt has it. Leaves are as of
/// TensorBoardOptions::Arrays::images; of more than one image in a firing the second has "-1"
/// behind its name, and so on. Without {step} the newest firing stays.
class Png {
 public:
  /// Throws TypeError for a file of another name.
  POSTERN_API explicit Png(const std::string& file, const PngOptions& options = {},
                           Place place = Place::current());
  /// Throws Error(unavailable) when a file cannot be written, and TypeError for what is no image.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

 private:
  std::shared_ptr<struct PngState> state_;
};
/// Makes a Png; throws as its constructor does.
///
///   const auto images = pn::listen::png("picture.png");
///   pn::tap({.name = "x"}, pn::tensor<float>({{0, 0.5}, {1, 0}}), images);
inline Png png(const std::string& file, const PngOptions& options = {},
               Place place = Place::current()) {
  return Png(file, options, place);
}

struct RowOptions {
  /// In JSON Lines: arrays of more elements are objects with count, nan, inf, min, mean and max.
  std::int64_t max_elements = 100;
  OnError on_error = OnError::stop;
};

/// What csv and jsonl return. A file that is there is continued; a last line that a killed process
/// left half written is taken away first. A file that is removed meanwhile is made again, which the
/// log says. One process at a time writes to a regular file. Pipes and terminals are written as
/// they come.
class Rows {
 public:
  enum class Format : std::uint8_t { csv, jsonl };
  /// Throws Error: failed_precondition when another process writes to the file, unavailable when it
  /// cannot be written; with OnError::go_on firings try again instead.
  POSTERN_API Rows(Format format, const std::filesystem::path& file, const RowOptions& options,
                   Place place = Place::current());
  /// Throws Error(unavailable) when the line cannot be written; then the file is as it was.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

 private:
  std::shared_ptr<struct RowsState> state_;
};

/// Returns a table for one tap: the columns step, time (seconds since 1970) and device, one for
/// each leaf of rank 0, and min, mean and max of the others. Throws TypeError when what is shown
/// does not have the columns that are there.
inline Rows csv(const std::filesystem::path& file, const RowOptions& options = {},
                Place place = Place::current()) {
  return {Rows::Format::csv, file, options, place};
}

/// Returns an object a line, for any taps: {"step":0,"time":1.7e9,"tap":"loss","device":0,
/// "values":{"loss":0.5}}, values by names and paths. Numbers that JSON lacks are the texts "NaN",
/// "Infinity" and "-Infinity", complex ones the pair of their parts. Throws as Rows does.
inline Rows jsonl(const std::filesystem::path& file, const RowOptions& options = {},
                  Place place = Place::current()) {
  return {Rows::Format::jsonl, file, options, place};
}

}  // namespace postern::listen
