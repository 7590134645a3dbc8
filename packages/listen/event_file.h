// TensorBoard's events: the records of an event file, which are TFRecords of protocol buffers.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::host {

/// Computes CRC-32C (Castagnoli), as TFRecords have it.
std::uint32_t crc32c(std::string_view bytes);

/// Makes one record of a TFRecord file: its length and itself, each with its masked checksum.
std::string tf_record(std::string_view data);

/// Makes the first event of a file.
std::string version_event(double time);

/// Makes values of a summary, which summary_event wraps.
std::string scalar_summary(const std::string& tag, float value);
/// Makes a summary of bins of equal width between `from` and `to`.
std::string histogram_summary(const std::string& tag, double from, double to,
                              std::span<const std::uint64_t> bins);
/// Makes a summary of PNG files of one size.
std::string image_summary(const std::string& tag, std::int64_t width, std::int64_t height,
                          const std::vector<std::string>& files);
std::string text_summary(const std::string& tag, std::string_view markdown);

struct Hyperparameter {
  std::string name;
  enum class Kind { number, text, boolean } kind;
  double number;
  std::string text;
};
std::string hyperparameters_summary(const std::vector<Hyperparameter>& parameters, double time);

std::string summary_event(double time, std::int64_t step, const std::vector<std::string>& values);

}  // namespace postern::internal::host
