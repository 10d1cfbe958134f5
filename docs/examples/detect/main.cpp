// Prints what the deployed detector finds in a picture (PPM, of type P6):
//   detect street.ppm
#include <stdio.h>
#include <stdlib.h>

#include "ek_app.h"

namespace {

constexpr int most_boxes = 100;

struct Picture {
    int width = 0, height = 0;
    unsigned char *pixels = nullptr;
    ~Picture() { free(pixels); }
};

bool read(const char *path, Picture &picture) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    int largest = 0;
    bool good = fscanf(file, "P6 %d %d %d", &picture.width, &picture.height, &largest) == 3;
    good = good && picture.width > 0 && picture.height > 0 && largest == 255;
    if (good) {
        fgetc(file); // the space before the pixels
        const size_t bytes = static_cast<size_t>(3) * picture.width * picture.height;
        picture.pixels = static_cast<unsigned char *>(malloc(bytes));
        good = picture.pixels && fread(picture.pixels, 1, bytes, file) == bytes;
    }
    fclose(file);
    return good;
}

} // namespace

int main(int count, char **arguments) {
    Picture picture;
    if (count != 2 || !read(arguments[1], picture)) {
        fputs("detect: expected a picture of type P6 with bytes as values\n", stderr);
        return 2;
    }
    char error[512];
    ek_app *app = ek_app_open(nullptr, nullptr, 0, error, sizeof error);
    if (!app) {
        fprintf(stderr, "detect: %s\n", error);
        return 1;
    }
    static ek_box boxes[most_boxes];
    const ek_frame frame = {picture.pixels, picture.width, picture.height, 0};
    const int found = ek_app_detect(app, &frame, boxes, most_boxes);
    if (found < 0)
        fprintf(stderr, "detect: %s\n", ek_app_error(app));
    for (int i = 0; i < found; i++)
        printf("%6.3f %6.0f %6.0f %6.0f %6.0f  %s\n", boxes[i].score, boxes[i].left, boxes[i].top,
               boxes[i].right, boxes[i].bottom, boxes[i].label);
    ek_app_close(app);
    return found < 0;
}
