// Print the errors of objects of operators, by the schemas of their custom resources, as JSON.
//
// The argument is the folder of the installed packages, and stdin contains the list of objects.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const FOLDERS = {
  "keda.sh/v1alpha1": "keda/keda.sh/v1alpha1",
  "monitoring.coreos.com/v1": "prometheus-operator/monitoring.coreos.com/v1",
};

const [packages] = process.argv.slice(2);
const errors = [];
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const folder = `${packages}/node_modules/@kubernetes-models/${FOLDERS[object.apiVersion]}`;
  const models = await import(pathToFileURL(`${folder}/${object.kind}.js`));
  try {
    new models[object.kind](object).validate();
  } catch (error) {
    errors.push(`${object.kind}: ${error.message}`);
  }
}
process.stdout.write(JSON.stringify(errors));
