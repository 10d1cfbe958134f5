// Names of classes and features.
#include "insn.h"

#define CLASS_NAME(name, like, text) #name,
#define CLASS_LIKE(name, like, text) EK_CLASS_##like,
#define FEATURE_NAME(name) #name,

static const char *const class_names[] = {EK_CLASSES(CLASS_NAME)};
static const int class_likes[] = {EK_CLASSES(CLASS_LIKE)};
static const char *const feature_names[] = {EK_FEATURES(FEATURE_NAME)};

static bool is_class(int class) {
    return class > 0 && class < EK_CLASS_COUNT;
}

const char *ek_class_name(int class) {
    return class_names[is_class(class) ? class : 0];
}

int ek_class_like(int class) {
    return class_likes[is_class(class) ? class : 0];
}

const char *ek_feature_name(int feature) {
    return feature_names[feature > 0 && feature < EK_FEATURE_COUNT ? feature : 0];
}
